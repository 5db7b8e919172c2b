"""Slides stored as levels: choice of the level, and resampling to a grid."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, SlideError, utf8
from sparseshot.images.resample import resample
from sparseshot.images.slide import Box, Grid, SlideDefaults

_PIECE_PX = 2**25
"""Pixels of a level in memory at once; a slide without coarse levels is reduced piece by piece."""


class PyramidSlide(SlideDefaults, ABC):
    """A :class:`~sparseshot.images.slide.Slide` over the levels of a file.

    Attributes:
        path: the file.
        vendor: kind of file.
        levels: width and height of each level, the largest first.
        downsamples: level-0 pixels per pixel of each level.
        stated_mpp: µm per level-0 pixel if the file states a plausible value.
        mpp: the value in use.
    """

    def __init__(
        self, path: Path, *, vendor: str, levels: Sequence[tuple[int, int]], stated_mpp: float | None = None
    ) -> None:
        self._closed = False
        self.path, self.name, self.vendor = path, utf8(path.name), vendor
        self.levels = tuple(levels)
        self.size = self.levels[0]
        self.downsamples = downsamples(self.levels)
        self.stated_mpp = stated_mpp
        self.mpp = stated_mpp or math.nan

    @abstractmethod
    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:
        """Read RGB; the box lies inside the level, and areas that were not scanned are white."""

    def __repr__(self) -> str:
        (width, height), n = self.size, len(self.levels)
        levels = "1 level" if n == 1 else f"{n} levels"
        return f"Slide({self.name}: {width:,} × {height:,} px at {self.mpp:g} µm, {levels}, {self.vendor})"

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        """Read RGB; see :meth:`sparseshot.images.slide.Slide.read`."""
        if box.width < 1 or box.height < 1:
            raise InputError(
                f"{self.name}: a region of {box.width} × {box.height} pixels; give at least 1 × 1"
            )
        inside = box.meet(grid.box)
        if inside == box:
            return self._resampled(grid.downsample, box)
        out = np.full((box.height, box.width, 3), 255, np.uint8)
        if inside.width and inside.height:
            out[inside.within(box)] = self._resampled(grid.downsample, inside)
        return out

    def _resampled(self, downsample: float, box: Box) -> NDArray[np.uint8]:
        if self._closed:
            raise SlideError(self.path, "the slide has been closed; open it again to read from it")
        # A level may be 1 % coarser than the target.
        level = max(i for i, d in enumerate(self.downsamples) if i == 0 or d <= downsample * 1.01)
        ratio = downsample / self.downsamples[level]
        if math.isclose(ratio, round(ratio), rel_tol=1e-9):
            ratio = float(round(ratio))
        side = max(1, int(math.sqrt(_PIECE_PX) / ratio))
        if box.width <= side and box.height <= side:
            return self._part(level, ratio, box)
        out = np.empty((box.height, box.width, 3), np.uint8)
        for block in box.blocks(side, side):
            part = block.meet(box)
            out[part.within(box)] = self._part(level, ratio, part)
        return out

    def _part(self, level: int, ratio: float, box: Box) -> NDArray[np.uint8]:
        width, height = self.levels[level]
        reach = 0 if ratio >= 1 else 1  # interpolation uses the neighbours
        x0, y0 = (min(math.floor(k * ratio), n - 1) - reach for k, n in ((box.x0, width), (box.y0, height)))
        source = Box(x0, y0, math.ceil(box.x1 * ratio) + reach, math.ceil(box.y1 * ratio) + reach)
        source = source.meet(Box(0, 0, width, height))
        pixels = self.read_level(level, source)
        if ratio == 1 and pixels.shape[:2] == (box.height, box.width):
            return pixels
        return resample(
            pixels,
            ratio,
            size=(box.width, box.height),
            first=(box.x0, box.y0),
            origin=(source.x0, source.y0),
        )

    def close(self) -> None:
        """Close the file."""
        self._closed = True


def downsamples(sizes: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return the level-0 pixels per pixel of each level.

    Scanners halve repeatedly and drop incomplete pixels, so a level of 1000 × 750 over one of 4003 × 3001 is
    four times smaller, not 4.002 times: with the quotient, a cell at the far edge would be two pixels off.
    The quotient is used only where no whole number explains the sizes.

    >>> downsamples([(4003, 3001), (1600, 1200), (1000, 750), (250, 187)])
    (1.0, 2.5013541666666668, 4.0, 16.0)
    """
    width, height = sizes[0]
    return tuple(_downsample(width, height, w, h) for w, h in sizes)


def _downsample(width: int, height: int, w: int, h: int) -> float:
    quotient = (width / w + height / h) / 2
    for whole in (2 ** round(math.log2(quotient)), round(quotient)):
        if whole >= 1 and abs(width / whole - w) <= 1 and abs(height / whole - h) <= 1:
            return float(whole)
    return quotient
