"""Slides stored as levels: choice of the level, and resampling to a grid."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, SlideError, utf8
from sparseshot.images.plain_image import as_rgb, bits_in_use, check_colors
from sparseshot.images.resample import resample
from sparseshot.images.slide import Box, Grid, Slide

_PIECE_PX = 2**25
"""Pixels of a level in memory at once; a slide without coarse levels is reduced piece by piece."""

_CACHE_BYTES = 2**28
"""Size of the cache of decoded blocks, so that overlapping reads decode each once."""

_SAMPLES = 16


class PyramidSlide(Slide):
    """A :class:`~sparseshot.images.slide.Slide` over the levels of a file.

    Attributes:
        path: the file.
        vendor: kind of file.
        levels: width and height of each level, the largest first.
        downsamples: level-0 pixels per pixel of each level.
        stated_mpp: µm per level-0 pixel if the file states a plausible value.
        mpp: the value in use.
    """

    name, size, mpp = "", (0, 0), math.nan

    def __init__(
        self, path: Path, *, vendor: str, levels: Sequence[tuple[int, int]], stated_mpp: float | None = None
    ) -> None:
        self._closed = False
        self.path, self.name, self.vendor = path, utf8(path.name), vendor
        self.levels, self.size = tuple(levels), levels[0]
        self.downsamples = downsamples(self.levels)
        self.stated_mpp, self.mpp = stated_mpp, stated_mpp or math.nan

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


class BlockSlide(PyramidSlide):
    """A slide whose levels are stored in blocks, each decoded once while it is in the cache.

    Args:
        path: the file.
        vendor: kind of file.
        levels: width and height of each level, the largest first.
        blocks: width and height of the blocks of each level.
        decode: returns the stored values of a block of a level, which begins at a corner of the blocks, or
            None where nothing is stored.
        stated_mpp: µm per level-0 pixel if the file states a plausible value.
        block_name: what the format calls a block.
        is_inverted: 0 is white.
        channels: names of three channels that are stored apart; None for colours.
    """

    def __init__(
        self,
        path: Path,
        *,
        vendor: str,
        levels: Sequence[tuple[int, int]],
        blocks: Sequence[tuple[int, int]],
        decode: Callable[[int, Box], NDArray[Any] | None],
        stated_mpp: float | None,
        block_name: str,
        is_inverted: bool = False,
        channels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(path, vendor=vendor, levels=levels, stated_mpp=stated_mpp)
        self._blocks, self._block_name = blocks, block_name
        samples = self._samples(decode, apart=channels is not None)
        bits = bits_in_use(*samples)
        if channels is not None:
            try:
                check_colors(channels, *(as_rgb(part, bits=bits) for part in samples))
            except ValueError as error:
                raise SlideError(path, str(error)) from error
        largest = max(3 * width * height for width, height in blocks)

        @lru_cache(max(1, _CACHE_BYTES // largest))
        def decoded(level: int, box: Box) -> NDArray[np.uint8] | None:  # without self, which would be a cycle
            if (pixels := decode(level, box)) is None:
                return None
            rgb = as_rgb(pixels, bits=bits)
            return 255 - rgb if is_inverted else rgb

        self._decoded = decoded

    def _samples(
        self, decode: Callable[[int, Box], NDArray[Any] | None], *, apart: bool
    ) -> list[NDArray[Any]]:
        """Return some pixels of blocks all over the coarsest level, as far as they can be read."""
        last = len(self.levels) - 1
        level = Box(0, 0, *self.levels[last])
        every = list(level.blocks(*self._blocks[last]))
        samples: list[NDArray[Any]] = []
        for number in np.unique(np.linspace(0, len(every) - 1, _SAMPLES).round().astype(int)).tolist():
            if samples and samples[0].dtype == np.uint8 and not apart:  # all that there is to know
                break
            box = every[number]
            with suppress(Exception):  # read_level will say what is wrong
                if (pixels := decode(last, box)) is not None:
                    samples.append(pixels[box.meet(level).within(box)][::4, ::4].copy())
        return samples

    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:
        """Read RGB from the blocks that overlap the box."""
        width, height = self._blocks[level]
        out = np.empty((box.height, box.width, 3), np.uint8)
        for whole in box.blocks(width, height):
            part = whole.meet(box)
            try:
                pixels = self._decoded(level, whole)
            except MemoryError:
                raise
            except Exception as error:  # decoders of untrusted files may raise anything
                x, y = (round(place * self.downsamples[level]) for place in whole[:2])
                place = f"column {whole.x0 // width}, row {whole.y0 // height} of level {level}"
                raise SlideError(
                    self.path,
                    f"the {self._block_name} at x {x}, y {y} ({place}) cannot be decoded ({error}); the rest "
                    "of the slide can be read; if the original is intact, copy it again",
                ) from error
            out[part.within(box)] = 255 if pixels is None else pixels[part.within(whole)]
        return out

    def close(self) -> None:
        """Drop the decoded blocks."""
        super().close()
        self._decoded.cache_clear()


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
