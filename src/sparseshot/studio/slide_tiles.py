"""Tiles of slides for the page: JPEG, straight from the reader."""

import math
from pathlib import Path
from threading import Semaphore

import numpy as np
import openslide
import simplejpeg

from sparseshot.errors import DataNotFoundError, SlideError
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import read_undamaged

TILE_PX = 256
_QUALITY = 85
_PIECE_PX = 64
_READERS = Semaphore(4)
"""More threads than cores only wait for each other."""


def tile_jpeg(slide: Slide, z: int, x: int, y: int) -> bytes:
    """Return a tile; white outside the slide and, if only parts can be read, where it is damaged.

    Args:
        slide: the slide.
        z: level; its pixels are 2ᶻ level-0 pixels.
        x: column of the tile.
        y: row of the tile.

    Raises:
        SlideError: nothing of the tile can be read.
    """
    grid = Grid.over(slide, slide.mpp * 2**z)
    box = Box(x * TILE_PX, y * TILE_PX, (x + 1) * TILE_PX, (y + 1) * TILE_PX)
    with _READERS:
        try:
            pixels = slide.read(grid, box)
        except SlideError:
            pixels, broken = read_undamaged(slide, grid, box, piece_px=_PIECE_PX)
            if len(broken) == len(list(box.blocks(_PIECE_PX, _PIECE_PX))):
                raise
    return jpeg(pixels)


def jpeg(pixels: np.ndarray) -> bytes:
    """Compress RGB."""
    encoded: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=_QUALITY)
    return encoded


def label_jpeg(path: Path) -> bytes:
    """Return the picture of a slide's paper label, or of its glass where it has none.

    Raises:
        DataNotFoundError: the file holds neither.
    """
    try:
        with openslide.OpenSlide(path) as opened:
            known = opened.associated_images
            picture = next((known[each] for each in ("label", "macro") if each in known), None)
            if picture is not None:
                return jpeg(np.asarray(picture.convert("RGB")))
    except (openslide.OpenSlideError, OSError):
        pass
    raise DataNotFoundError(path, "the file holds no picture of its label")


def levels_of(slide: Slide) -> int:
    """Return the coarsest level: the one whose tile holds the whole slide.

    >>> from types import SimpleNamespace
    >>> levels_of(SimpleNamespace(size=(100_000, 80_000))), levels_of(SimpleNamespace(size=(200, 200)))
    (9, 0)
    """
    return max(0, math.ceil(math.log2(max(slide.size) / TILE_PX)))
