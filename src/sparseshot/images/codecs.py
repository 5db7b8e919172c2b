"""Decoders of TIFF tiles."""

import importlib.util
import io
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import simplejpeg
import tifffile
from numpy.typing import NDArray
from PIL import Image

Decoder = Callable[[bytes], NDArray[Any]]
"""Maps the bytes of a tile to ``(height, width, samples)``; ValueError or OSError if they are corrupt."""

_NONE, _JPEG, _DEFLATE, _OLD_DEFLATE = 1, 7, 8, 32946
_JPEG2000 = {33005, 34712}  # Aperio's for RGB and the registered one; Aperio's 33003 holds YCbCr
_INVERTED_GREY, _GREY, _RGB, _YCBCR = 0, 1, 2, 6


class UnknownLayout(Exception):  # noqa: N818  not yet an error: OpenSlide may read it
    """A TIFF has a layout that is not read here; the message says why."""


class BrokenLayout(UnknownLayout):
    """A TIFF that OpenSlide must not read: it would show wrong values, or abort on impossible sizes."""


def tile_decoder(page: tifffile.TiffPage) -> Decoder:
    """Return the decoder for the tiles of a page, or raise :class:`UnknownLayout`."""
    samples = page.samplesperpixel if page.planarconfig == 1 else 1
    shape = (page.tilelength, page.tilewidth, samples)
    if page.dtype not in {np.dtype(np.uint8), np.dtype(np.uint16)} or page.tiledepth != 1:
        raise BrokenLayout(f"its {page.dtype} values are neither of 8 nor of 16 bits, unsigned")
    if page.photometric not in {_INVERTED_GREY, _GREY, _RGB} and not (
        page.photometric == _YCBCR and page.compression == _JPEG
    ):
        raise UnknownLayout(f"its colours are {_name(page.photometric)}, neither grey nor RGB")
    if page.compression == _JPEG and page.dtype == np.uint8 and samples in {1, 3}:
        return partial(_jpeg, head=_jpeg_head(page), shape=shape)
    if page.compression in _JPEG2000 and page.photometric == _RGB and samples == 3:
        return partial(_jpeg2000, shape=shape)
    if page.compression in {_NONE, _DEFLATE, _OLD_DEFLATE} and page.predictor in {1, 2}:
        stored = np.dtype(page.dtype).newbyteorder(page.parent.byteorder)
        packed = page.compression != _NONE
        return partial(_plain, packed=packed, differences=page.predictor == 2, shape=shape, stored=stored)
    if importlib.util.find_spec("imagecodecs"):
        return partial(_by_imagecodecs, page=page, shape=shape)
    cure = "pip install imagecodecs" if hasattr(page.compression, "name") else "export it with JPEG tiles"
    raise UnknownLayout(
        f"its tiles are compressed by {_name(page.compression)}, which needs another reader: {cure}"
    )


def _name(code: Any) -> str:
    return getattr(code, "name", str(code))


def _jpeg_head(page: tifffile.TiffPage) -> bytes:
    """Return the start of each tile's JPEG: the shared tables and the colour space.

    An Adobe segment states whether the channels are RGB or YCbCr; without it the decoder would guess.
    """
    tables = page.jpegtables[2:-2] if page.jpegtables else b""
    transform = b"\1" if page.photometric == _YCBCR else b"\0"
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + transform
    return b"\xff\xd8" + (adobe if page.samplesperpixel == 3 else b"") + tables


def _jpeg(data: bytes, *, head: bytes, shape: tuple[int, int, int]) -> NDArray[Any]:
    if data[:2] != b"\xff\xd8":
        raise ValueError("not a JPEG")
    whole = head + data[2:]
    _check_size(simplejpeg.decode_jpeg_header(whole)[:2], shape)
    return _fitting(simplejpeg.decode_jpeg(whole, colorspace="RGB" if shape[2] == 3 else "GRAY"), shape)


def _jpeg2000(data: bytes, *, shape: tuple[int, int, int]) -> NDArray[Any]:
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG2000"]) as image:
            _check_size((image.height, image.width), shape)
            return _fitting(np.asarray(image), shape)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


def _check_size(size: tuple[int, int], shape: tuple[int, int, int]) -> None:
    """Raise if an image claims to be far larger than its tile, before memory is allocated for it."""
    if size[0] * size[1] > 4 * shape[0] * shape[1]:
        raise ValueError(f"a tile of {shape[1]} × {shape[0]} pixels holds an image of {size[1]} × {size[0]}")


def _plain(
    data: bytes, *, packed: bool, differences: bool, shape: tuple[int, int, int], stored: np.dtype[Any]
) -> NDArray[Any]:
    wanted = int(np.prod(shape)) * stored.itemsize
    if packed:
        try:
            data = zlib.decompressobj().decompress(data, wanted)  # never more than a tile
        except zlib.error as error:
            raise ValueError(str(error)) from error
    if len(data) < wanted:
        raise ValueError(f"{len(data)} bytes instead of {wanted}")
    pixels = np.frombuffer(data, stored, count=int(np.prod(shape))).reshape(shape)
    pixels = pixels.astype(stored.newbyteorder("="), copy=False)
    return np.cumsum(pixels, axis=1, dtype=pixels.dtype) if differences else pixels


def _by_imagecodecs(data: bytes, *, page: tifffile.TiffPage, shape: tuple[int, int, int]) -> NDArray[Any]:
    try:
        pixels = page.decode(data, 0, jpegtables=page.jpegtables, _fullsize=True)[0]
    except Exception as error:  # each of its codecs raises a class of its own
        raise ValueError(str(error)) from error
    if pixels is None:
        raise ValueError("empty")
    return _fitting(pixels[0], shape)


def _fitting(pixels: NDArray[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    if pixels.ndim != 3 or any(have < want for have, want in zip(pixels.shape, shape, strict=True)):
        raise ValueError(f"a tile of {shape} holds {pixels.shape}")
    return pixels[: shape[0], : shape[1], : shape[2]]
