"""Plain images: PNG, JPEG, BMP, TIFF and other formats that Pillow reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    IMAGEDESCRIPTION,
    PLANAR_CONFIGURATION,
    SAMPLEFORMAT,
    SAMPLESPERPIXEL,
    TiffImageFile,
)

from sparseshot.compiled import compiled
from sparseshot.errors import DataNotFoundError, SlideError
from sparseshot.images.tiff_check import is_tiff, opened_tiff

MAX_PIXELS = 2**30
"""Largest plain image that is decoded at once: 32,768², 3 GiB as RGB."""


def read_image(path: Path | str) -> NDArray[np.uint8]:
    """Read an image as ``(H, W, 3)`` RGB, pixels as stored (EXIF orientation is not applied).

    Transparency is blended with white, grey and palettes become RGB, 16-bit values keep their high byte, and
    of several pages the first is read.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "grey.png"
    >>> Image.new("L", (3, 2), 7).save(file)
    >>> read_image(file).shape, read_image(file)[0, 0].tolist()
    ((2, 3, 3), [7, 7, 7])
    """
    path = Path(path)
    if not path.exists():
        raise DataNotFoundError(path, "no such image; check the path")
    try:
        with opened_image(path) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise SlideError(
                    path,
                    f"{width} × {height} pixels are more than the {MAX_PIXELS:,} that are decoded at once; "
                    "convert it to a tiled pyramidal TIFF and open that as a slide",
                )
            return _read_tiff(path) if _is_misread(image) else _rgb(image)
    except UnidentifiedImageError as error:
        if is_tiff(path):
            return _read_tiff(path)
        raise SlideError(path, "not an image of a known format; save it as PNG, JPEG or TIFF") from error
    except SlideError:
        raise
    except Exception as error:  # decoders of untrusted files may raise anything
        raise _broken(path, error) from error


@contextmanager
def opened_image(path: Path) -> Iterator[Image.Image]:
    """Open by Pillow without its global limit of 179 megapixels, which large crops exceed."""
    with _lift, Image.open(path) as image:
        yield image


class _LiftedLimit:
    """Switches Pillow's limit off while any thread is inside."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._usual: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                Image.MAX_IMAGE_PIXELS = self._usual


_lift = _LiftedLimit()


def _is_misread(image: Image.Image) -> bool:
    """Return whether Pillow would misread this TIFF.

    It takes signed and 32-bit values for unsigned 16-bit ones, 16-bit values in separate planes for 8-bit
    ones, and the first channel of an OME-TIFF for all.
    """
    if not isinstance(image, TiffImageFile):
        return False
    tags = image.tag_v2
    bits = max(tags.get(BITSPERSAMPLE, (8,)))
    is_signed = max(tags.get(SAMPLEFORMAT, (1,))) > 1
    one_channel = tags.get(SAMPLESPERPIXEL, 1) == 1 and "<OME" in str(tags.get(IMAGEDESCRIPTION, ""))
    return bits > 16 or is_signed or (tags.get(PLANAR_CONFIGURATION) == 2 and bits > 8) or one_channel


def _rgb(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode == "RGB":
        return np.array(image)
    if image.mode.startswith("I"):  # 16-bit grey, which some Pillow versions open as 32-bit; see _is_misread
        return as_rgb(np.array(image).astype(np.uint16))
    if image.mode == "F":
        raise ValueError("32-bit float values have no known range")
    return as_rgb(np.array(image.convert("RGBA" if image.has_transparency_data else "RGB")))


def as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert ``(H, W)`` or ``(H, W, 1 to 4)`` pixels of 8 or 16 bits to RGB on white."""
    if pixels.dtype == np.uint16:
        pixels = pixels >> 8
    elif pixels.dtype == bool:
        pixels = pixels * np.uint8(255)
    elif pixels.dtype != np.uint8:
        raise ValueError(f"{pixels.dtype} values have no known range")
    pixels = pixels.astype(np.uint8, copy=False)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    channels = pixels.shape[2]
    if channels in {2, 4}:
        return _on_white(pixels)
    if channels not in {1, 3}:
        raise ValueError(f"{channels} channels are neither grey nor RGB nor RGBA")
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


@compiled
def _on_white(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend colours with white by their opacity, the last channel."""
    height, width, channels = pixels.shape
    out = np.empty((height, width, 3), np.uint8)
    for i in range(height):
        for j in range(width):
            opacity = np.int32(pixels[i, j, channels - 1])
            for c in range(3):
                value = np.int32(pixels[i, j, c if channels == 4 else 0])
                out[i, j, c] = (
                    value if opacity == 255 else (value * opacity + 255 * (255 - opacity) + 127) // 255
                )
    return out


def _read_tiff(path: Path) -> NDArray[np.uint8]:
    """Read a TIFF that Pillow cannot."""
    try:
        with opened_tiff(path) as file:
            image = file.series[0].levels[0] if file.is_ome else file.pages.first
            if image.size > 4 * MAX_PIXELS:
                raise ValueError(f"its {image.size:,} values are too many to decode at once")
            is_one_plane = image.axes in {"YX", "YXS", "SYX"} or (image.axes == "CYX" and image.shape[0] == 3)
            if not is_one_plane:
                raise ValueError(f"its axes are {image.axes}, {image.shape}; export one plane in RGB")
            pixels = image.asarray()
            return as_rgb(np.moveaxis(pixels, 0, -1) if image.axes in {"SYX", "CYX"} else pixels)
    except SlideError:
        raise
    except Exception as error:  # as above
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> SlideError:
    reason = str(error) or type(error).__name__
    return SlideError(
        path, f"cannot be decoded ({reason}); copy it again, or save it as an 8-bit PNG or TIFF"
    )
