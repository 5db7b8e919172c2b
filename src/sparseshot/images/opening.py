"""Opening slides and images of any kind."""

import math
import warnings
from pathlib import Path

import numpy as np
import openslide
from numpy.typing import NDArray

from sparseshot.errors import DataNotFoundError, SlideError, SparseshotWarning
from sparseshot.images.codecs import BrokenLayout, UnknownLayout
from sparseshot.images.ngff import OmeZarr, is_ome_zarr
from sparseshot.images.openslide_file import OpenSlideFile
from sparseshot.images.pixel_size import SAME_MPP, image_mpp
from sparseshot.images.plain_image import check_not_empty, read_image
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.slide import Box, check_mpp
from sparseshot.images.tiff import TiledTiff
from sparseshot.images.tiff_check import is_tiff

IMAGE_SUFFIXES = frozenset(
    {
        ".png",
        ".jpg",
        ".jpeg",
        ".bmp",
        ".tif",
        ".tiff",
        ".svs",
        ".ndpi",
        ".mrxs",
        ".scn",
        ".dcm",
        ".bif",
        ".vms",
        ".zarr",
    }
)
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
