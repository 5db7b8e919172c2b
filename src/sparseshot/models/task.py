"""What a task decides: its network, its targets, its loss beside the logits, and how cells are found.

To add a task, write one module with a class that has the members of :class:`Task`, and name it in
:data:`sparseshot.models.config.TASKS`.

One forward pass answers three questions: is there a cell, where exactly, and of which kind. The kind of a
found cell is a *linear head on at most 64 features that the network outputs at the place of the cell*
(:meth:`Task.features`); finding never depends on it. A starter brings a head of its own,
``network.kind_head``, for the kinds that its configuration names.
:attr:`sparseshot.models.inference.WindowOutputs.cells_and_features` gives found cells with their features,
to learn other kinds from.
"""

from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.errors import InputError
from sparseshot.images import TissueMask
from sparseshot.models.finder import Finder, SlideFrame

UNANNOTATED = 0
CERTAIN_BACKGROUND = -1
IGNORED = -100
"""Values of a label map beside the classes 1…C."""


class Points(NamedTuple):
    """Marks as points, in pixels.

    Attributes:
        xy: ``(K, 2)``.
        target: ``(K,)`` int16, 0 for certain negatives, 1…C.
        size: ``(K, 2)`` width and height, NaN where a mark has no outline.
        kind: ``(K,)`` int16, index of the kind, −1 where it is unknown; None where no kinds are learned.
    """

    xy: NDArray[np.float64]
    target: NDArray[np.int16]
    size: NDArray[np.float64]
    kind: NDArray[np.int16] | None = None


class Target(NamedTuple):
    """What a network should output for a crop; ``*`` is ``H, W``, or ``rows, cols`` of the detector's grid.

    Attributes:
        target: ``(*)`` int64: 0, 1…C, −100 ignored.
        annotated: ``(*)`` bool.
        offset: ``(2, *)`` float32 for a detector, in [0, 1) where the mark itself lies; else None.
        size: ``(2, *)`` float32 for a detector, NaN where unknown; else None.
        kind: int64 over the grid of the features: index of the kind, −1 where there is none; None where no
            kinds are learned.
    """

    target: NDArray[np.int64]
    annotated: NDArray[np.bool_]
    offset: NDArray[np.float32] | None = None
    size: NDArray[np.float32] | None = None
    kind: NDArray[np.int64] | None = None


class Task(Protocol):
    """Members of a task.

    Attributes:
        name: on the command line.
        score_name: Dice or F1.
        paints_marks: the label map shows marks; otherwise only regions, and marks are points.
        mirrors_edges: beyond its edges an image is continued by its mirror image; otherwise it is white.
        scores_whole_cells: a higher threshold leaves cells out, and changes no other.
        bytes_per_cell: of shard and QuPath file together, measured.
        out_channels: logits for each location.
        stride: pixels to a location.
        kind_features: features for the kind of a cell; 0 for none.
    """

    name: ClassVar[str]
    score_name: ClassVar[str]
    paints_marks: ClassVar[bool]
    mirrors_edges: ClassVar[bool]
    scores_whole_cells: ClassVar[bool]
    bytes_per_cell: ClassVar[int]

    @property
    def out_channels(self) -> int: ...  # noqa: D102
    @property
    def stride(self) -> int: ...  # noqa: D102
    @property
    def kind_features(self) -> int: ...  # noqa: D102

    def network(self) -> nn.Module:
        """Return a network with fresh weights."""
        ...

    def logits(self, output: Tensor) -> Tensor:
        """Return the part of the output that a loss of :mod:`sparseshot.losses` takes."""
        ...

    def features(self, output: Tensor) -> Tensor:
        """Return the features for the kind, ``(N, kind_features, rows, cols)``."""
        ...

    def place_loss(
        self,
        output: Tensor,
        target: Tensor,
        offset: Tensor | None,
        size: Tensor | None,
        height: Tensor | None,
    ) -> Tensor:
        """Return the loss of the other outputs, learned from annotated cells only."""
        ...

    def target(self, label: NDArray[np.int16], points: Points) -> Target:
        """Return the target of a crop.

        Args:
            label: ``(H, W)`` 1…C, :data:`UNANNOTATED`, :data:`CERTAIN_BACKGROUND` or :data:`IGNORED`.
            points: the marks of the crop, in its pixels.
        """
        ...

    def finder(self, frame: SlideFrame, tissue: TissueMask, *, threshold: float, margin_px: int) -> Finder:
        """Return what turns outputs over a slide into cells."""
        ...


def kind_loss(task: Task, network: nn.Module, output: Tensor, kind: Tensor) -> Tensor:
    """Return the cross-entropy of the network's own kind head at marks of known kind; 0 without any."""
    n, row, col = torch.nonzero(kind >= 0, as_tuple=True)
    if not len(n):
        return output.sum() * 0
    logits = network.kind_head(task.features(output)[n, :, row, col].float())  # type: ignore[operator]
    return F.cross_entropy(logits, kind[n, row, col])


def target_and_annotated(label: NDArray[np.int16]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Split a label map into the target and where it is certain."""
    background = label == CERTAIN_BACKGROUND
    return np.where(background, 0, label).astype(np.int64), (label > 0) | background


def make_own_network(name: str, task: Task) -> nn.Module:
    """Import the module that ``module:function`` names, and return the network that the function makes.

    Args:
        name: given by the user. A name that is only in a model must not come here: to import is to run code.
        task: the function's only argument. Its ``out_channels`` and ``stride`` say what the network returns:
            ``(N, out_channels, rows, cols)`` with a row for every ``stride`` pixels, and for a detector two
            channels more, the place of the cell within a location.
    """
    from sparseshot.losses.registry import find_own  # noqa: PLC0415  a prediction needs no losses

    made = find_own("network", name)
    if not callable(made):
        raise InputError(
            f"network {name!r} is no function; name one that takes the task and returns a network"
        )
    network = made(task)
    if not isinstance(network, nn.Module):
        raise InputError(f"network {name!r} returned {type(network).__name__}; return a torch.nn.Module")
    return network
