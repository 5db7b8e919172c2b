"""The two tasks: outlines by a U-Net, places by a YOLLO-style detector."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.models.grid import offset_from_channels, size_from_channels
from sparseshot.models.unet import UNet
from sparseshot.models.yollo import YOLLO


class Task(Protocol):
    """What the loop needs to know of a task.

    Attributes:
        name: ``segment`` or ``detect``.
        out_channels: logits for each location.
        stride: pixels to a location.
    """

    name: ClassVar[str]

    @property
    def out_channels(self) -> int: ...  # noqa: D102
    @property
    def stride(self) -> int: ...  # noqa: D102

    def network(self) -> nn.Module:
        """Make a network with fresh weights."""
        ...

    def logits(self, output: Tensor) -> Tensor:
        """Return the part of the output that a loss of :mod:`sparseshot.losses` takes."""
        ...

    def place_loss(
        self, output: Tensor, target: Tensor, offset: Tensor | None, size: Tensor | None
    ) -> Tensor:
        """Return the loss of what else the output tells, learned from annotated cells only."""
        ...


@dataclass(frozen=True)
class Segment:
    """Every pixel its class."""

    name: ClassVar[str] = "segment"
    stride: ClassVar[int] = 1
    out_channels: int = 1
    width: int = 16
    depth: int = 3

    def network(self) -> nn.Module:
        """Make a U-Net."""
        return UNet(out_channels=self.out_channels, width=self.width, depth=self.depth)

    def logits(self, output: Tensor) -> Tensor:
        """Return the output: it is all logits."""
        return output

    def place_loss(
        self,
        output: Tensor,
        target: Tensor,  # noqa: ARG002
        offset: Tensor | None,  # noqa: ARG002
        size: Tensor | None,  # noqa: ARG002
    ) -> Tensor:
        """Return zero: pixels have no place to learn."""
        return output.new_zeros(())


@dataclass(frozen=True)
class Detect:
    """Every cell its place."""

    name: ClassVar[str] = "detect"
    out_channels: int = 1
    width: int = 16
    stride: int = 8
    sizes: bool = False

    def network(self) -> nn.Module:
        """Make a YOLLO-style detector."""
        return YOLLO(out_channels=self.out_channels, width=self.width, stride=self.stride, sizes=self.sizes)

    def logits(self, output: Tensor) -> Tensor:
        """Return the logits of the grid cells."""
        return output[:, : self.out_channels]

    def place_loss(
        self, output: Tensor, target: Tensor, offset: Tensor | None, size: Tensor | None
    ) -> Tensor:
        """Smooth L1 on offsets, and on the logarithm of sizes where they are known, of annotated cells."""
        n, row, col = torch.nonzero(target > 0, as_tuple=True)
        if offset is None or not len(n):
            return output.sum() * 0
        channels = output[n, :, row, col].float()
        k = self.out_channels
        loss = F.smooth_l1_loss(
            offset_from_channels(channels[:, k : k + 2]), offset[n, :, row, col], beta=0.1
        )
        if self.sizes and size is not None:
            wanted = size[n, :, row, col]
            known = torch.isfinite(wanted) & (wanted > 0)
            guess = size_from_channels(channels[:, k + 2 :], stride=self.stride)
            if known.any():
                loss = loss + F.smooth_l1_loss(guess[known].log(), wanted[known].log(), beta=0.1)
        return loss
