"""U-Net (Ronneberger et al., MICCAI 2015) with batch normalisation.

A second head gives *heights*: the distance of a pixel to the border of its cell, relative to the largest in
that cell. They tell touching cells apart. A branch of its own on the coarsest level gives *kind features*.
The kind of a found cell is a linear head on the features at its centroid; finding never depends on it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.errors import InputError
from sparseshot.models.yollo import feature_branch, packed_features


class UNet(nn.Module):
    """U-Net with logits for each pixel; any input size.

    Args:
        out_channels: 1 for one class, C + 1 for C classes and background.
        width: channels of the first level; each level below has twice as many.
        depth: number of halvings.
        heights: predict heights too, as one more logit after those of the classes.
        kind_features: features for the kind of a cell, of each square of ``2**depth`` pixels; 0 for none.
        kinds: kinds that ``kind_head``, linear on these features, tells apart; it is not part of the output.

    The output has ``out_channels`` logits, then that of the height, then the kind features as full-size
    channels that :func:`~sparseshot.models.yollo.unpacked_features` unpacks: 64 of depth 3 are one channel.

    >>> UNet(width=4, depth=2).eval()(torch.zeros(2, 3, 37, 50)).shape
    torch.Size([2, 1, 37, 50])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        out_channels: int = 1,
        width: int = 16,
        depth: int = 4,
        heights: bool = False,
        kind_features: int = 0,
        kinds: int = 0,
    ) -> None:
        super().__init__()
        if min(in_channels, out_channels, width, depth) < 1:
            raise InputError(
                f"a U-Net needs at least 1 of everything; got in_channels {in_channels}, "
                f"out_channels {out_channels}, width {width}, depth {depth}"
            )
        widths = [width * 2**level for level in range(depth + 1)]
        self.stem = _two_convolutions(in_channels, width)
        self.down = nn.ModuleList(_two_convolutions(w, 2 * w) for w in widths[:-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(_two_convolutions(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, out_channels, 1)
        self.height_head = nn.Conv2d(width, 1, 1) if heights else None
        self.features = feature_branch(widths[-1], kind_features)
        self.kind_head = nn.Linear(kind_features, kinds) if kinds else None
        self.depth: int = depth

    @property
    def alignment_px(self) -> int:
        """Tiles that begin at multiples of this see the same pooling windows as the whole image."""
        return 1 << self.depth

    @property
    def margin_px(self) -> int:
        """Receptive field around a pixel, rounded up to the alignment.

        Two 3 × 3 convolutions reach 2 pixels of their level; down the levels and up again that is
        2 · (2 · (1 + 2 + … + 2^(depth−1)) + 2^depth); pooling and its inverse add at most 2^depth − 1.
        """
        reach: int = 2 * (2 * (2**self.depth - 1) + 2**self.depth) + 2**self.depth - 1
        return -(-reach // self.alignment_px) * self.alignment_px

    def forward(self, image: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, channels, H, W)``."""
        height, width = image.shape[-2:]
        right, bottom = -width % self.alignment_px, -height % self.alignment_px
        x = self.stem(F.pad(image, (0, right, 0, bottom), mode="replicate") if right or bottom else image)
        skips = []
        for convolutions in self.down:
            skips.append(x)
            x = convolutions(F.max_pool2d(x, 2))
        coarsest = x
        for up, convolutions in zip(self.up, self.merge, strict=True):
            x = convolutions(torch.cat([skips.pop(), up(x)], dim=1))
        outputs = [self.head(x)]
        if self.height_head is not None:
            outputs.append(self.height_head(x))
        if self.features is not None:
            outputs.append(packed_features(self.features(coarsest), self.alignment_px))
        output: Tensor = torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]
        return output[..., :height, :width]


def _two_convolutions(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )
