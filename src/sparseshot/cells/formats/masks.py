"""Label masks: images in which the pixels of a cell share one value and 0 is background."""

import logging
import math
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
import shapely
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageFile, PngImagePlugin, TiffImagePlugin

from sparseshot.cells.formats.options import OpenFile, ReadOptions, WriteOptions
from sparseshot.cells.raster import rasterise
from sparseshot.cells.table import Cells
from sparseshot.cells.trace import connected_pieces, trace
from sparseshot.errors import FormatError, InputError

MOST_PIXELS = 1 << 31
MOST_EXPANSION = 1100
"""Limit of deflate, which blank masks nearly reach."""
FREE_BYTES = 64 << 20


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Trace the outline of each value, which becomes the id; a mask of one value is binary."""
    return cells_of(_labels(source), source.name, options)


def cells_of(labels: NDArray[Any], where: str, options: ReadOptions, *, may_be_binary: bool = True) -> Cells:
    """Return the cells of a label image, after checking that it is one.

    In a binary image, which has one value besides 0, each component connected by edges or corners is a cell.
    """
    labels = _whole_numbers(labels, where)
    height, width = labels.shape
    if options.size_px is not None and tuple(options.size_px) != (width, height):
        wanted = f"{options.size_px[0]} × {options.size_px[1]}"
        raise FormatError(where, f"is {width} × {height}, its image {wanted}; they must be of one size")
    some = labels[labels > 0]
    if may_be_binary and some.size and some.min() == some.max():
        labels = connected_pieces(labels)
    values, xy, outline = trace(labels)
    return Cells(xy, id=values, outline=outline)


def _whole_numbers(labels: NDArray[Any], where: str) -> NDArray[Any]:
    if labels.ndim != 2:
        raise FormatError(where, f"has shape {labels.shape}; a label mask has one value for each pixel")
    if labels.dtype.kind == "f":
        whole = np.nan_to_num(labels, nan=-1, posinf=-1, neginf=-1)
        if (whole != np.floor(whole)).any() or whole.min(initial=0) < 0 or whole.max(initial=0) >= 2**63:
            raise FormatError(where, "holds numbers that are not whole, so they are not labels")
        labels = whole.astype(np.int64)
    if labels.dtype.kind not in "iub":
        raise FormatError(where, f"holds {labels.dtype}; labels are whole numbers")
    if labels.dtype.kind == "i" and labels.min(initial=0) < 0:
        raise FormatError(where, f"holds {labels.min()}; labels are not negative")
    if labels.dtype.kind == "u" and labels.max(initial=0) >= 2**63:
        raise FormatError(where, f"holds {labels.max()}; labels are below 2⁶³")
    return labels.astype(labels.dtype.newbyteorder("="), copy=False)


def _labels(source: OpenFile) -> NDArray[Any]:
    head = source.file.peek(8)[:8]  # type: ignore[attr-defined]
    try:
        if head.startswith(b"\x93NUMPY"):
            return _npy(source.file)
        if head.startswith(b"\x89PNG"):
            return _pillow(PngImagePlugin.PngImageFile, source.file)
        return _tiff(source)
    except FormatError:
        raise
    except Exception as error:  # decoders raise anything for damaged files
        raise FormatError(source.name, f"cannot be read as a mask: {error}") from None


def _npy(file: BinaryIO) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    refuse_huge(shape, dtype.itemsize, file)
    file.seek(0)
    loaded: NDArray[Any] = np.load(file, allow_pickle=False)
    return loaded


def _tiff(source: OpenFile) -> NDArray[Any]:
    logger = logging.getLogger("tifffile")
    was, logger.disabled = logger.disabled, True  # it logs each damaged tag
    try:
        # OME-XML may claim planes without number, and other files; a mask is the one image in this file.
        with tifffile.TiffFile(source.file, is_ome=False) as tiff:
            if len(tiff.series) != 1:
                count = len(tiff.series)
                raise FormatError(source.name, f"holds {count} images, as slides do; a mask is one image")
            refuse_huge(tiff.series[0].shape, tiff.series[0].dtype.itemsize, source.file)
            labels: NDArray[Any] = tiff.asarray()
            return labels
    except tifffile.TiffFileError as error:
        raise FormatError(source.name, f"cannot be read as TIFF: {error}") from None
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        source.file.seek(0)  # a compression that tifffile leaves to others
        return _pillow(TiffImagePlugin.TiffImageFile, source.file)
    finally:
        logger.disabled = was


def _pillow(open_image: Callable[[BinaryIO], ImageFile.ImageFile], file: BinaryIO) -> NDArray[Any]:
    """Read an image by its own class: ``Image.open`` refuses what is larger than 13,377 pixels square."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd tags
        with open_image(file) as image:
            refuse_huge(image.size, len(image.getbands()), file)
            return np.asarray(image)


def refuse_huge(shape: Sequence[int], itemsize: int, file: BinaryIO) -> None:
    """Refuse sizes beyond the limit, or beyond what a file of this size can contain."""
    count = math.prod(shape)
    here = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(here)
    if count > MOST_PIXELS or count * itemsize > FREE_BYTES + MOST_EXPANSION * size:
        raise ValueError(f"it claims {' × '.join(map(str, shape))} values, but has {size:,} bytes")


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Draw each cell with its id, or with 1 + row if ids are not positive numbers."""
    values = np.arange(1, len(cells) + 1, dtype=np.uint32)
    if cells.id is not None:
        fits = cells.id.dtype.kind == "i" and cells.id.min(initial=1) >= 1 and cells.id.max(initial=1) < 2**32
        if fits and len(np.unique(cells.id)) == len(cells):
            values = cells.id.astype(np.uint32)
        else:
            options.losses.count("ids replaced by numbers", len(cells))
    bare = len(cells) if cells.outline is None else int(shapely.is_missing(cells.outline).sum())
    options.losses.count("cells without outline drawn as a disc", bare)
    options.count_lost(cells, "score", "measurements", "regions", "nucleus", "name")
    width, height = options.size_px or cells.extent_px
    if width * height > MOST_PIXELS:
        raise InputError(f"a mask of {width} × {height} pixels is too large; crop the cells, or give size_px")
    row = rasterise(cells, (height, width), by="instance")
    seen = np.bincount(row.ravel(), minlength=len(cells) + 1)[1:] > 0
    options.losses.count("cells outside of the mask or hidden by others lost", (~seen).sum())
    options.count_lost(cells, "classes")
    labels = np.concatenate([np.zeros(1, np.uint32), values])[row]
    largest = int(labels.max(initial=0))
    smallest_type = np.uint8 if largest < 256 else np.uint16 if largest < 65536 else np.uint32
    if options.suffix == ".npy":
        np.save(file, labels, allow_pickle=False)
    elif options.suffix == ".png":
        if smallest_type is np.uint32:
            raise InputError(f"a label is {largest:,}, but PNG holds at most 65,535; write .tif or .npy")
        Image.fromarray(labels.astype(smallest_type)).save(file, "PNG")
    else:
        tifffile.imwrite(file, labels.astype(smallest_type), compression="zlib", photometric="minisblack")
