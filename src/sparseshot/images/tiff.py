"""Tiled TIFF without OpenSlide: Aperio SVS, pyramidal TIFF, OME-TIFF.

OpenSlide paints every tile onto a canvas, which costs several times what decoding does, and where a level's
size is no whole fraction of level 0 it interpolates, differently for every corner a read begins at. Here
tiles are decoded and copied, so that a pixel of a level is the pixel that is stored.
"""

import logging
import math
import os
import weakref
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.codecs import BrokenLayout, UnknownLayout
from sparseshot.images.pixel_size import tiff_mpp
from sparseshot.images.plain import as_rgb
from sparseshot.images.slide import Box
from sparseshot.images.tiff_directory import is_aperio, tiff_levels

_CACHE_BYTES = 2**28
"""Decoded tiles kept, so that the margins of neighbouring reads are not decoded twice."""

# It logs what it finds odd, and without a handler that would go to the terminal.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class TiffPyramid:
    """The levels of a tiled TIFF, see :class:`sparseshot.images.pyramid.Pyramid`.

    Raises :class:`UnknownLayout` for what it does not read, so that OpenSlide can be asked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with tifffile.TiffFile(path) as file:
                first = file.pages.first
                self.vendor = "aperio" if is_aperio(first) else "ome-tiff" if file.is_ome else "tiff"
                self._levels = tiff_levels(file)
                self.mpp = tiff_mpp(first)
        except UnknownLayout as unknown:
            if self.vendor == "ome-tiff" and (first.samplesperpixel, first.planarconfig) != (3, 1):
                # Other readers would show its first channel as if that were all.
                raise SlideError(path, f"this OME-TIFF cannot be read: {unknown}") from unknown
            raise
        except SlideError:
            raise
        except Exception as error:  # parsing strangers' files raises anything
            raise BrokenLayout(f"its directory cannot be read ({error})") from error
        self.sizes = tuple((level.width, level.height) for level in self._levels)
        self._file = _SharedFile(path)
        end = max(int((p.offsets + p.counts).max()) for level in self._levels for p in level.planes)
        if end > self._file.size:
            self._file.close()
            raise SlideError(
                path, f"the file ends at byte {self._file.size:,}, its tiles at {end:,}; copy it again"
            )
        self._cache = _TileCache(_CACHE_BYTES)

    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:
        """Read RGB from the tiles that the box touches."""
        layer = self._levels[level]
        tw, th = layer.tile_width, layer.tile_height
        out = np.empty((box.height, box.width, 3), np.uint8)
        for row in range(box.y0 // th, math.ceil(box.y1 / th)):
            for column in range(box.x0 // tw, math.ceil(box.x1 / tw)):
                whole = Box(column * tw, row * th, (column + 1) * tw, (row + 1) * th)
                part = whole.meet(box)
                tile = self._tile(level, column, row)
                out[part.within(box)] = 255 if tile is None else tile[part.within(whole)]
        return out

    def _tile(self, level: int, column: int, row: int) -> NDArray[np.uint8] | None:
        """Return the pixels of a tile, or None where nothing is stored."""
        layer = self._levels[level]
        index = row * layer.across + column
        tile = self._cache.get((level, index))
        if tile is None:
            try:
                planes = [
                    self._file.read(int(p.offsets[index]), layer.bytes_of(p, index)) for p in layer.planes
                ]
                if not all(planes):
                    return None
                colors = [p.decode(data) for p, data in zip(layer.planes, planes, strict=True)]
                tile = as_rgb(colors[0] if len(colors) == 1 else np.concatenate(colors, axis=2))
            except (OSError, OverflowError, SyntaxError, ValueError) as error:
                raise self._broken(level, column, row, error) from error
            self._cache.put((level, index), tile)
        return tile

    def _broken(self, level: int, column: int, row: int, error: Exception) -> SlideError:
        layer = self._levels[level]
        scale = self.sizes[0][0] / layer.width
        x, y = round(column * layer.tile_width * scale), round(row * layer.tile_height * scale)
        return SlideError(
            self.path,
            f"the tile at x {x}, y {y} (column {column}, row {row} of level {level}) cannot be decoded "
            f"({error}); the rest of the slide can be read; copy the file again if it was whole elsewhere",
        )

    def close(self) -> None:
        """Let go of the file and of the tiles kept."""
        self._file.close()
        self._cache.clear()


class _SharedFile:
    """A file that several threads read at once, closed at the latest when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.close = weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size
        self._lock = Lock()

    def read(self, offset: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, count, offset)
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, count)


class _TileCache:
    """The tiles used last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._tiles: OrderedDict[Any, NDArray[np.uint8]] = OrderedDict()
        self._room = max_bytes
        self._lock = Lock()

    def get(self, key: Any) -> NDArray[np.uint8] | None:
        with self._lock:
            tile = self._tiles.get(key)
            if tile is not None:
                self._tiles.move_to_end(key)
            return tile

    def put(self, key: Any, tile: NDArray[np.uint8]) -> None:
        with self._lock:
            if key in self._tiles:
                return
            self._tiles[key] = tile
            self._room -= tile.nbytes
            while self._room < 0 and len(self._tiles) > 1:
                self._room += self._tiles.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        with self._lock:
            self._room += sum(tile.nbytes for tile in self._tiles.values())
            self._tiles.clear()
