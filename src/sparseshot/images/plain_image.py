"""Plain images: PNG, JPEG, BMP, TIFF and other formats that Pillow reads."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    IMAGEDESCRIPTION,
    PHOTOMETRIC_INTERPRETATION,
    PLANAR_CONFIGURATION,
    SAMPLEFORMAT,
    SAMPLESPERPIXEL,
    TiffImageFile,
)

from sparseshot.errors import DataNotFoundError, SlideError
from sparseshot.images.tiff_check import is_tiff, opened_tiff

_STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""What undoes the turn by each orientation of TIFF."""

_FLUORESCES = re.compile(r"\b(Fluor|EmissionWavelength|ExcitationWavelength)=|=\"(Epif|F)luorescence\"")
_COLOR_NAME = re.compile(r"(red|green|blue|r|g|b|(c|ch|channel)?[\s:_-]*[\d:]*)", re.IGNORECASE)
_DARK = 40
"""Median of an image whose background is black, of 255."""

MAX_PIXELS = 2**30
"""Largest plain image that is decoded at once: 32,768², 3 GiB as RGB."""


def read_image(path: Path | str) -> NDArray[np.uint8]:
    """Read an image as ``(H, W, 3)`` RGB, pixels as stored (EXIF orientation is not applied).

    Transparency is blended with white, grey and palettes become RGB, values of more than 8 bits keep the high
    8 of those in use, and of several pages the first is read.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "grey.png"
    >>> Image.new("L", (3, 2), 7).save(file)
    >>> read_image(file).shape, read_image(file)[0, 0].tolist()
    ((2, 3, 3), [7, 7, 7])
    """
    path = Path(path)
    if not path.exists():
        raise DataNotFoundError(path, "no such image; check the path")
    check_not_empty(path)
    try:
        return _decoded(path)
    except SlideError:
        raise
    except Exception as error:  # decoders of untrusted files may raise anything
        reason = str(error) or type(error).__name__
        raise SlideError(
            path, f"cannot be decoded ({reason}); copy it again, or save it as an 8-bit PNG or TIFF"
        ) from error


def _decoded(path: Path) -> NDArray[np.uint8]:
    try:
        with opened_image(path) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise SlideError(
                    path,
                    f"{width} × {height} pixels are more than the {MAX_PIXELS:,} that are decoded at once; "
                    "convert it to a tiled pyramidal TIFF and open that as a slide",
                )
            if not _is_misread(image):
                return _as_stored(image)
    except UnidentifiedImageError as error:
        if not is_tiff(path):
            raise SlideError(path, "not an image of a known format; save it as PNG, JPEG or TIFF") from error
    return _read_tiff(path)


def check_not_empty(path: Path) -> None:
    """Raise SlideError for a file without content."""
    if path.is_file() and path.stat().st_size == 0:
        raise SlideError(path, "the file is empty (0 bytes); copy it again")


_limit_lifted = RLock()


@contextmanager
def opened_image(path: Path) -> Iterator[Image.Image]:
    """Open by Pillow without its global limit of 179 megapixels, which large crops exceed; one at a time."""
    with _limit_lifted:
        usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            with Image.open(path) as image:
                yield image
        finally:
            Image.MAX_IMAGE_PIXELS = usual


def _is_misread(image: Image.Image) -> bool:
    """Return whether Pillow would misread this TIFF.

    It takes signed and 32-bit values for unsigned 16-bit ones, 16-bit values in separate planes for 8-bit
    ones, and the first channel of an OME-TIFF for all. It does not invert 16-bit values whose 0 is white, and
    keeps the high byte of 16-bit colours that use 12 bits.
    """
    if not isinstance(image, TiffImageFile):
        return False
    tags = image.tag_v2
    bits = max(tags.get(BITSPERSAMPLE, (8,)))
    is_signed = max(tags.get(SAMPLEFORMAT, (1,))) > 1
    samples = tags.get(SAMPLESPERPIXEL, 1)
    one_channel = samples == 1 and "<OME" in str(tags.get(IMAGEDESCRIPTION, ""))
    is_planar = tags.get(PLANAR_CONFIGURATION) == 2
    is_inverted = tags.get(PHOTOMETRIC_INTERPRETATION) == 0
    is_known = image.info.get("compression") in {"raw", "tiff_adobe_deflate", "tiff_deflate"}
    is_deep = bits > 8 and (is_planar or is_inverted or (samples > 1 and is_known))
    return bits > 16 or is_signed or is_deep or one_channel


def _as_stored(image: Image.Image) -> NDArray[np.uint8]:
    """Return the pixels as RGB, without the turn that Pillow gives to some TIFFs."""
    turn = image.tag_v2.get(ExifTags.Base.Orientation) if isinstance(image, TiffImageFile) else None
    return _rgb(image.transpose(_STORED[turn]) if turn in _STORED else image)


def _rgb(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode == "RGB":
        return np.array(image)
    if image.mode.startswith("I"):  # 16-bit grey, which some Pillow versions open as 32-bit; see _is_misread
        pixels = np.array(image).astype(np.uint16)
        return as_rgb(pixels, bits=bits_in_use(pixels))
    if image.mode == "F":
        raise ValueError("32-bit float values have no known range")
    return as_rgb(np.array(image.convert("RGBA" if image.has_transparency_data else "RGB")))


def bits_in_use(*pixels: NDArray[Any]) -> int:
    """Return how many bits the values of an image use: cameras store 10, 12 or 14 bits in 16.

    >>> bits_in_use(np.array([90, 4095], np.uint16)), bits_in_use(np.array([90, 40_000], np.uint16))
    (12, 16)
    """
    highest = max((int(part.max()) for part in pixels if part.size), default=2**16)
    return next((bits for bits in (8, 10, 12, 14) if highest < 2**bits), 16)


def as_rgb(pixels: NDArray[Any], *, bits: int = 16) -> NDArray[np.uint8]:
    """Convert ``(H, W)`` or ``(H, W, 1 to 4)`` pixels of 8 or 16 bits to RGB on white.

    Args:
        pixels: the values.
        bits: those in use of 16.
    """
    if pixels.dtype == np.uint16:
        pixels = np.minimum(pixels >> (bits - 8), 255)
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
    return _of_three(pixels)


def _of_three(colors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.broadcast_to(colors, (*colors.shape[:2], 3)))


def _on_white(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend colours with white by their opacity, the last channel."""
    colors, opacity = pixels[:, :, :-1], pixels[:, :, -1:]
    if opacity.min() < 255:
        opacity = opacity.astype(np.uint16)  # which holds 255² + 127
        colors = ((colors * opacity + 255 * (255 - opacity) + 127) // 255).astype(np.uint8)
    return _of_three(colors)


def _read_tiff(path: Path) -> NDArray[np.uint8]:
    """Read a TIFF that Pillow cannot."""
    with opened_tiff(path) as file:
        page = file.pages.first
        image = file.series[0].levels[0] if file.is_ome else page
        if image.size > 4 * MAX_PIXELS:
            raise ValueError(f"its {image.size:,} values are too many to decode at once")
        is_one_plane = image.axes in {"YX", "YXS", "SYX"} or (image.axes == "CYX" and image.shape[0] == 3)
        if not is_one_plane:
            raise ValueError(f"its axes are {image.axes}, {image.shape}; export one plane in RGB")
        pixels = image.asarray()
        if image.axes in {"SYX", "CYX"}:
            pixels = np.moveaxis(pixels, 0, -1)
        if image.axes != "CYX" and pixels.ndim == 3:
            pixels = pixels[:, :, : samples_shown(page)]
        rgb = as_rgb(pixels, bits=bits_in_use(pixels))
        if image.axes == "CYX":
            check_colors(ome_channels(page.description), rgb)
        return 255 - rgb if page.photometric == 0 else rgb


def samples_shown(page: tifffile.TiffPage) -> int:
    """Return how many samples of a pixel are its colours and opacity; others mean something else."""
    colors = 1 if page.photometric in {0, 1} else 3
    has_opacity = next(iter(page.extrasamples), 0) in {1, 2}
    return min(page.samplesperpixel, colors + has_opacity)


def ome_channels(xml: str) -> list[str]:
    """Return what OME-XML says about each channel: the name, or that it fluoresces."""
    channels = re.findall(r"<(?:\w+:)?Channel\b([^<>]{0,4000})", xml)
    names = [re.search(r'\bName="([^"]{0,200})', text) for text in channels]
    return [
        "fluorescence" if _FLUORESCES.search(text) else (name.group(1) if name else "")
        for text, name in zip(channels, names, strict=True)
    ]


def check_colors(names: Sequence[str], *samples: NDArray[np.uint8]) -> None:
    """Raise ValueError if three channels that are stored apart are stains and not red, green and blue.

    Args:
        names: of the channels, as far as they are known.
        samples: pixels of the image; light microscopy has a bright background, fluorescence a dark one.
    """
    others = [name for name in names if not _COLOR_NAME.fullmatch(name)]
    reason = f"they are named {', '.join(names)[:80]}" if others else ""
    if samples and not reason:
        median = np.median(np.concatenate([part.reshape(-1) for part in samples]))
        reason = "the image is dark" if median < _DARK else ""
    if reason:
        raise ValueError(
            f"its three channels look like fluorescence, not red, green and blue: {reason}; "
            "export a bright-field image in RGB"
        )
