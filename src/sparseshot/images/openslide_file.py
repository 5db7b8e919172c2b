"""Slides of every scanner that OpenSlide supports."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import numpy as np
import openslide
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.pixel_size import plausible
from sparseshot.images.plain_image import as_rgb
from sparseshot.images.pyramid import PyramidSlide, downsamples
from sparseshot.images.slide import Box

_CACHE_BYTES = 2**28
_BLOCK_PX = 128


class OpenSlideFile(PyramidSlide):
    """A file that OpenSlide reads.

    Where a file states the bounds of the scanned area (MRXS, SCN), the slide is that area and coordinates
    start at its corner, as in QuPath.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._cache = openslide.OpenSlideCache(_CACHE_BYTES)
        self._slide = self._opened()
        properties = self._slide.properties
        whole = self._slide.level_dimensions
        left, top, width, height = _bounds(properties, whole[0])
        self._corner = (left, top)
        self._quotients = self._slide.level_downsamples
        steps = downsamples(whole)
        is_cut = (width, height) != whole[0]
        cut = [(max(1, int(width / step)), max(1, int(height / step))) for step in steps]
        super().__init__(
            path,
            vendor=properties.get("openslide.vendor", "unknown"),
            levels=cut if is_cut else whole,
            stated_mpp=plausible(*(float(properties.get(f"openslide.mpp-{axis}", "nan")) for axis in "xy")),
        )
        self._steps = steps  # of the whole levels, before the cut

    def _opened(self) -> openslide.OpenSlide:
        try:
            slide = openslide.OpenSlide(self.path)
        except (openslide.OpenSlideError, OSError) as error:
            raise SlideError(
                self.path, f"cannot be opened ({error}); copy it again, with every file that belongs to it"
            ) from error
        slide.set_cache(self._cache)
        return slide

    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:
        """Read RGB, white where nothing was scanned.

        OpenSlide divides level-0 coordinates by the quotient of the level's sizes. Where that is not a whole
        number, it interpolates, by another fraction for every origin. There, reads always start at the
        corners of fixed blocks, so that a pixel does not depend on the region.
        """
        step = self._quotients[level]
        if step == self._steps[level]:
            return self._region(level, box)
        out = np.empty((box.height, box.width, 3), np.uint8)
        for block in box.blocks(_BLOCK_PX, _BLOCK_PX):
            part = block.meet(box)
            read = block._replace(x1=part.x1, y1=part.y1)
            out[part.within(box)] = self._region(level, read)[part.within(read)]
        return out

    def _region(self, level: int, box: Box) -> NDArray[np.uint8]:
        (left, top), step, quotient = self._corner, self._steps[level], self._quotients[level]
        place = (round((left / step + box.x0) * quotient), round((top / step + box.y0) * quotient))
        slide = self._slide
        try:
            return _white_below(slide, place, level, box)
        except openslide.OpenSlideError:
            pass
        # After one error a handle fails for good, in every thread, so the error may be another read's. A
        # handle of its own shows whether this region is broken.
        with self._lock:
            if self._slide is slide:
                self._slide = self._opened()
            alone = self._opened()
        with alone:
            try:
                return _white_below(alone, place, level, box)
            except openslide.OpenSlideError as error:
                size = f"{box.width} × {box.height} pixels of level {level}"
                where = f"x {round(box.x0 * step)}, y {round(box.y0 * step)} ({size})"
                raise SlideError(
                    self.path,
                    f"the region at {where} cannot be read ({error}); the rest of the slide can; "
                    "if the original is intact, copy it again",
                ) from error

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._slide.close()


def _bounds(properties: Mapping[str, str], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return x, y, width and height of the scanned area; the whole slide where the file states none."""
    try:
        x, y, width, height = (
            int(properties[f"openslide.bounds-{name}"]) for name in ("x", "y", "width", "height")
        )
    except (KeyError, ValueError):
        return 0, 0, *size
    is_inside = min(x, y) >= 0 and min(width, height) > 0 and x + width <= size[0] and y + height <= size[1]
    return (x, y, width, height) if is_inside else (0, 0, *size)


def _white_below(
    slide: openslide.OpenSlide, place: tuple[int, int], level: int, box: Box
) -> NDArray[np.uint8]:
    return as_rgb(np.asarray(slide.read_region(place, level, (box.width, box.height))))
