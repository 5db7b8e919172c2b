"""Slides of every scanner that OpenSlide knows."""

from pathlib import Path
from threading import Lock

import numpy as np
import openslide
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.pixel_size import plausible
from sparseshot.images.plain import as_rgb
from sparseshot.images.pyramid import downsamples
from sparseshot.images.slide import Box

_CACHE_BYTES = 2**28
_BLOCK_PX = 128


class OpenSlidePyramid:
    """The levels of a file that OpenSlide reads, see :class:`sparseshot.images.pyramid.Pyramid`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._cache = openslide.OpenSlideCache(_CACHE_BYTES)
        self._slide = self._opened()
        properties = self._slide.properties
        self.vendor = properties.get("openslide.vendor", "unknown")
        self.sizes = tuple(self._slide.level_dimensions)
        self.mpp = plausible(*(float(properties.get(f"openslide.mpp-{axis}", "nan")) for axis in "xy"))
        self._quotients = self._slide.level_downsamples
        self._downsamples = downsamples(self.sizes)

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

        OpenSlide takes level-0 places and divides them by its own quotient of the level's sizes. Where that
        is no whole number, it interpolates, by another fraction for every corner a read begins at. So there
        reads always begin at the corners of fixed blocks, and a pixel does not depend on the region.
        """
        step = self._quotients[level]
        if step == self._downsamples[level]:
            return self._region(level, box)
        out = np.empty((box.height, box.width, 3), np.uint8)
        for y in range(box.y0 // _BLOCK_PX * _BLOCK_PX, box.y1, _BLOCK_PX):
            for x in range(box.x0 // _BLOCK_PX * _BLOCK_PX, box.x1, _BLOCK_PX):
                part = Box(x, y, x + _BLOCK_PX, y + _BLOCK_PX).meet(box)
                pixels = self._region(level, Box(x, y, part.x1, part.y1))
                rows, columns = (
                    slice(part.y0 - box.y0, part.y1 - box.y0),
                    slice(part.x0 - box.x0, part.x1 - box.x0),
                )
                out[rows, columns] = pixels[part.y0 - y :, part.x0 - x :]
        return out

    def _region(self, level: int, box: Box) -> NDArray[np.uint8]:
        place = (round(box.x0 * self._quotients[level]), round(box.y0 * self._quotients[level]))
        slide = self._slide
        try:
            return _white_below(slide, place, level, box)
        except openslide.OpenSlideError:
            pass
        # After one error a handle fails for good, and for every thread: the error may be another's. A handle
        # that nobody else reads from shows whose it is.
        with self._lock:
            if self._slide is slide:
                self._slide = self._opened()
            alone = self._opened()
        with alone:
            try:
                return _white_below(alone, place, level, box)
            except openslide.OpenSlideError as error:
                where = f"x {place[0]}, y {place[1]} ({box.width} × {box.height} pixels of level {level})"
                raise SlideError(
                    self.path,
                    f"the region at {where} cannot be read ({error}); the rest of the slide can; "
                    "copy the file again if it was whole elsewhere",
                ) from error

    def close(self) -> None:
        """Let go of the file."""
        self._slide.close()


def _white_below(
    slide: openslide.OpenSlide, place: tuple[int, int], level: int, box: Box
) -> NDArray[np.uint8]:
    return as_rgb(np.asarray(slide.read_region(place, level, (box.width, box.height))))
