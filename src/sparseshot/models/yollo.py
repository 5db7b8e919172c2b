"""A detector after YOLLO.

"You Only Look on Lymphocytes Once" (van Rijthoven et al., MIDL 2018) reduces YOLO to one kind of small
object. Its layers are not public, so this network is YOLLO-style: fully convolutional, 3 × 3 convolution,
batch normalisation and LeakyReLU; for each grid cell the probability that an object's centre lies in it, the
offset of the centre and, optionally, the size of the object.

With *context*, coarser levels look farther around before the last two convolutions: the tissue that a cell
lies in says much about its kind. A grid of 4 pixels then has two, of 8 and 16 pixels, like one path of a
U-Net, and separates crowded nuclei that a grid of 8 cannot.

A branch of its own gives *kind features* for each square of at least 8 pixels, or grid cell without context.
The kind of a found cell is a linear head on the features where it was found; finding never depends on it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.errors import InputError

STRIDES = (4, 8, 16)


class YOLLO(nn.Module):
    """Logits, an offset and optionally a size for each grid cell.

    Args:
        out_channels: 1 for one class, C + 1 for C classes and background.
        width: channels at full resolution; they double at each halving.
        stride: pixels to a grid cell: 8 (4 µm at 0.5 µm/px), 4 for crowded nuclei, or 16.
        sizes: predict width and height of the object too.
        context: look farther around, on levels coarser than the grid.
        kind_features: features for the kind of a cell; 0 for none.
        kinds: kinds that ``kind_head``, linear on these features, tells apart; it is not part of the output.

    The output has ``out_channels`` logits, then 2 offset channels, then 2 size channels with
    ``sizes``, then the kind features; see :mod:`sparseshot.models.detection_grid`. Where the features are
    coarser than the grid they are packed, by :func:`packed_features`.

    >>> YOLLO(width=4, stride=8).eval()(torch.zeros(2, 3, 64, 50)).shape
    torch.Size([2, 3, 8, 7])
    >>> YOLLO(width=4, stride=4, context=True, kind_features=16).eval()(torch.zeros(2, 3, 64, 48)).shape
    torch.Size([2, 7, 16, 12])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        out_channels: int = 1,
        width: int = 16,
        stride: int = 8,
        sizes: bool = False,
        context: bool = False,
        kind_features: int = 0,
        kinds: int = 0,
    ) -> None:
        super().__init__()
        if stride not in STRIDES:
            raise InputError(f"stride is {stride}; choose one of {', '.join(map(str, STRIDES))}")
        if min(in_channels, out_channels, width) < 1:
            raise InputError(
                f"YOLLO needs at least 1 of everything; got in_channels {in_channels}, "
                f"out_channels {out_channels}, width {width}"
            )
        self.halvings: int = stride.bit_length() - 1
        layers: list[nn.Module] = [_convolution(in_channels, width), _convolution(width, width)]
        channels = width
        for _ in range(self.halvings):
            layers += [
                nn.MaxPool2d(2),
                _convolution(channels, 2 * channels),
                _convolution(2 * channels, 2 * channels),
            ]
            channels *= 2
        layers += [_convolution(channels, channels), _convolution(channels, channels)]
        self.body = nn.Sequential(*layers)
        wide = min(2 * channels, 8 * width)
        self.context = _coarser(channels, wide) if context else None
        self.is_fine: bool = context and stride == 4
        if self.is_fine:
            self.farther, self.merge = _coarser(wide, wide), _convolution(wide, wide)
            self.up = nn.ConvTranspose2d(wide, channels, 2, stride=2)
        self.head = nn.Conv2d(channels, out_channels + 2 + 2 * sizes, 1)
        self.features = feature_branch(wide if self.is_fine else channels, kind_features)
        self.kind_head = nn.Linear(kind_features, kinds) if kinds else None
        self.stride: int = stride
        self.out_channels = out_channels
        self.sizes = sizes

    @property
    def alignment_px(self) -> int:
        """Tiles that begin at multiples of this have the grid of the whole image."""
        if self.context is None:
            return self.stride
        return 4 * self.stride if self.is_fine else 2 * self.stride

    @property
    def margin_px(self) -> int:
        """Receptive field around a grid cell, rounded up to the alignment."""
        reach: int = 2 * (2 ** (self.halvings + 1) - 1) + 2 * self.stride
        if self.context is not None:
            reach += 2 * (2 * self.stride) + self.stride  # two convolutions there, and the way down and up
        if self.is_fine:
            reach += 2 * self.stride + 2 * (4 * self.stride) + 2 * self.stride  # and one on the way up
        return -(-reach // self.alignment_px) * self.alignment_px

    def forward(self, image: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, channels, ⌈H / stride⌉, ⌈W / stride⌉)``."""
        height, width = image.shape[-2:]
        right, bottom = -width % self.alignment_px, -height % self.alignment_px
        if right or bottom:
            image = F.pad(image, (0, right, 0, bottom), mode="replicate")
        if self.context is None:
            body = about = self.body(image)
        else:
            near = self.body[:-2](image)
            around = self.context(near)
            if self.is_fine:
                around = self.merge(around + F.interpolate(self.farther(around), scale_factor=2.0))
                body, about = self.body[-2:](near + self.up(around)), around
            else:
                body = about = self.body[-2:](near + F.interpolate(around, scale_factor=2.0))
        output: Tensor = self.head(body)
        if self.features is not None:
            features = self.features(about)
            output = torch.cat([output, features if about is body else packed_features(features, 2)], dim=1)
        return output[..., : -(-height // self.stride), : -(-width // self.stride)]


def feature_branch(in_channels: int, kind_features: int) -> nn.Sequential | None:
    """Return the branch of a network that gives features for the kind of a cell; None for 0 features."""
    if not kind_features:
        return None
    return nn.Sequential(
        nn.Conv2d(in_channels, kind_features, 1, bias=False),
        nn.BatchNorm2d(kind_features),
        nn.LeakyReLU(0.1, inplace=True),
    )


def packed_features(features: Tensor, factor: int) -> Tensor:
    """Pack features into channels of a grid that is ``factor`` times finer: 64 by 2 are 16 channels."""
    rest = -features.shape[1] % factor**2
    return F.pixel_shuffle(F.pad(features, (0, 0, 0, 0, 0, rest)), factor)


def unpacked_features(channels: Tensor, *, kind_features: int, factor: int) -> Tensor:
    """Return the kind features ``(N, F, H / factor, W / factor)`` that :func:`packed_features` packed.

    >>> unpacked_features(torch.zeros(1, 1, 16, 32), kind_features=48, factor=8).shape
    torch.Size([1, 48, 2, 4])
    """
    return F.pixel_unshuffle(channels, factor)[:, :kind_features]


def _coarser(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.MaxPool2d(2), _convolution(in_channels, out_channels), _convolution(out_channels, out_channels)
    )


def _convolution(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.LeakyReLU(0.1, inplace=True),
    )
