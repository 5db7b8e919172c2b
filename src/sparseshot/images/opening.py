"""Opening slides and images of any kind, by OpenSlide those of most scanners."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import numpy as np
import openslide
from numpy.typing import NDArray

from sparseshot.errors import DataNotFoundError, SlideError, SparseshotWarning
from sparseshot.images.codecs import BrokenLayout, UnknownLayout
from sparseshot.images.fingerprint import is_ome_zarr
from sparseshot.images.pixel_size import SAME_MPP, image_mpp, plausible
from sparseshot.images.plain_image import as_rgb, check_not_empty, read_image
from sparseshot.images.pyramid import PyramidSlide, downsamples
from sparseshot.images.slide import Box, check_mpp
from sparseshot.images.tiff import TiledTiff
from sparseshot.images.tiff_check import is_tiff

_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"}
_SCANS = {".svs", ".ndpi", ".mrxs", ".scn", ".dcm", ".bif", ".vms", ".zarr"}
IMAGE_SUFFIXES = frozenset(_PICTURES | _SCANS)
"""Suffixes of the files and folders that are taken for images in a folder."""

_TIFF_VENDORS = {None, "aperio", "generic-tiff"}
"""Simple TIFFs, read faster without OpenSlide; None is a file that OpenSlide does not recognise."""


def open_slide(path: Path | str, *, mpp: float | None = None, force_mpp: bool = False) -> PyramidSlide:
    """Open a whole slide or a plain image as a :class:`~sparseshot.images.slide.Slide`.

    Reads what OpenSlide reads (SVS, NDPI, MRXS, SCN, BIF, DICOM, …), pyramidal TIFF, OME-TIFF, OME-Zarr,
    and plain images as slides of one level.

    Args:
        path: the file; any one file of a DICOM series, the ``.mrxs`` file of MRXS, the folder of OME-Zarr.
        mpp: µm per level-0 pixel, for files that state none. A file that states another keeps its own, with
            a warning.
        force_mpp: use ``mpp`` in any case, for files that state a wrong one.

    >>> import tempfile
    >>> from PIL import Image
    >>> from sparseshot.images import read_region
    >>> file = Path(tempfile.mkdtemp()) / "crop.png"
    >>> Image.new("RGB", (60, 40), "purple").save(file)
    >>> with open_slide(file, mpp=0.25) as slide:
    ...     print(slide, read_region(slide, 0, 0, 10, 10, mpp=0.5).shape)
    Slide(crop.png: 60 × 40 px at 0.25 µm, 1 level, image) (10, 10, 3)
    """
    path = Path(path)
    if mpp is not None:
        check_mpp(mpp)
    if not path.exists():
        raise DataNotFoundError(path, "no such slide; check the path")
    if path.is_dir() and not is_ome_zarr(path):
        raise SlideError(path, "is a folder; give a file, e.g. any one file of a DICOM series")
    check_not_empty(path)
    try:
        slide = _opened(path)
    except OSError as error:
        raise SlideError(
            path, f"cannot be read ({error.strerror or error}); check its permissions"
        ) from error
    slide.stated_mpp = stated = slide.stated_mpp or (None if path.is_dir() else image_mpp(path))
    if mpp and stated and not force_mpp:
        if not math.isclose(mpp, stated, rel_tol=SAME_MPP):
            warnings.warn(
                f"{slide.name} states {stated:g} µm per pixel, which is used instead of the given {mpp:g}; "
                "if the file is wrong, add --force-mpp",
                SparseshotWarning,
                stacklevel=2,
            )
        mpp = stated
    mpp = mpp or stated
    if mpp is None:
        slide.close()
        raise SlideError(
            path,
            "the file does not state its pixel size; give it in µm with --mpp 0.25 or mpp=0.25 "
            "(40x is about 0.25, 20x about 0.5)",
        )
    slide.mpp = mpp
    return slide


def _opened(path: Path) -> PyramidSlide:
    if path.is_dir():
        try:
            from sparseshot.images.ngff import OmeZarr  # noqa: PLC0415  needs an extra
        except ImportError as error:
            cure = 'OME-Zarr needs Zarr; install it with: pip install "sparseshot[zarr]"'
            raise SlideError(path, cure) from error
        return OmeZarr(path)
    vendor = openslide.OpenSlide.detect_format(path)
    if not (is_tiff(path) and vendor in _TIFF_VENDORS):
        return OpenSlideFile(path) if vendor else PlainImage(path)
    try:
        return TiledTiff(path)
    except UnknownLayout as unknown:
        ask_openslide = vendor is not None and not isinstance(unknown, BrokenLayout)
        try:
            return OpenSlideFile(path) if ask_openslide else PlainImage(path)
        except SlideError as error:
            raise SlideError(path, f"{error.problem} (read as tiles: {unknown})") from error


class PlainImage(PyramidSlide):
    """A plain image as a slide of one level."""

    def __init__(self, path: Path) -> None:
        self._pixels = read_image(path)
        super().__init__(path, vendor="image", levels=[(self._pixels.shape[1], self._pixels.shape[0])])

    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:  # noqa: ARG002  there is only one
        """Return a copy from the decoded image."""
        return self._pixels[box.y0 : box.y1, box.x0 : box.x1].copy()

    def close(self) -> None:
        """Drop the pixels."""
        super().close()
        self._pixels = np.empty((0, 0, 3), np.uint8)


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
