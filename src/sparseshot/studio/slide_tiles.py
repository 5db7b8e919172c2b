"""Tiles of slides for the page: JPEG, straight from the reader."""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock, Semaphore

import numpy as np
import openslide
import simplejpeg

from sparseshot.errors import DataNotFoundError, SlideError
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import read_undamaged

TILE_PX = 256
_QUALITY = 85
_CACHE_BYTES = 128 * 2**20
_READERS = 4
_PIECE_PX = 64


class ByteCache:
    """A thread-safe cache of bytes, bounded in size; the least recently used go first.

    >>> cache = ByteCache(10)
    >>> cache.get("a", lambda: b"12345678"), cache.get("a", lambda: b"other")
    (b'12345678', b'12345678')
    >>> cache.get("b", lambda: b"123"), cache.get("a", lambda: b"anew")
    (b'123', b'anew')
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._used = most_bytes, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._mutex = Lock()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the bytes of a key, made by ``make`` if they are not kept."""
        with self._mutex:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._mutex:
            self._used += len(made) - len(self._kept.pop(key, b""))
            self._kept[key] = made
            while self._used > self._most:
                self._used -= len(self._kept.popitem(last=False)[1])
        return made


class SlideTiles:
    """Tiles of any slide; level z has pixels of 2ᶻ level-0 pixels."""

    def __init__(self) -> None:
        self._cache = ByteCache(_CACHE_BYTES)
        self._readers = Semaphore(_READERS)  # more threads than cores only wait for each other

    def jpeg(self, key: Hashable, slide: Slide, z: int, x: int, y: int) -> bytes:
        """Return a tile; white outside the slide and, if only parts can be read, where it is damaged.

        Args:
            key: of the slide in the cache.
            slide: the slide.
            z: level.
            x: column of the tile.
            y: row of the tile.

        Raises:
            SlideError: nothing of the tile can be read.
        """
        return self._cache.get((key, z, x, y), lambda: self._made(slide, z, x, y))

    def _made(self, slide: Slide, z: int, x: int, y: int) -> bytes:
        grid = Grid.over(slide, slide.mpp * 2**z)
        box = Box(x * TILE_PX, y * TILE_PX, (x + 1) * TILE_PX, (y + 1) * TILE_PX)
        with self._readers:
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
