"""Tiled TIFF without OpenSlide: Aperio SVS, pyramidal TIFF, OME-TIFF.

OpenSlide draws every tile onto a canvas, which costs several times as much as decoding. Where a level is
not a whole fraction of level 0, it interpolates, differently for every origin of a read. Here tiles are
decoded and copied, so a pixel of a level is the pixel that is stored.
"""

import logging
import os
import weakref
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.codecs import BrokenLayout, UnknownLayout
from sparseshot.images.pixel_size import tiff_mpp
from sparseshot.images.plain_image import as_rgb
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.slide import Box
from sparseshot.images.tiff_check import opened_tiff
from sparseshot.images.tiff_directory import TiffLevel, is_aperio, tiff_levels

_CACHE_BYTES = 2**28
"""Size of the cache of decoded tiles, so that overlapping reads decode each tile once."""

# Without a handler, its log would go to the terminal.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class TiledTiff(PyramidSlide):
    """A tiled TIFF.

    Raises :class:`UnknownLayout` for files it does not read, for which OpenSlide is tried next.
    """

    def __init__(self, path: Path) -> None:
        try:
            with opened_tiff(path) as file:
                first = file.pages.first
                vendor = "aperio" if is_aperio(first) else "ome-tiff" if file.is_ome else "tiff"
                self._levels = tiff_levels(file)
                mpp = tiff_mpp(first)
        except UnknownLayout as unknown:
            if (
                vendor == "ome-tiff"
                and first.is_tiled
                and (first.samplesperpixel, first.planarconfig) != (3, 1)
            ):
                # Other readers would show only its first channel.
                raise SlideError(path, f"this OME-TIFF cannot be read: {unknown}") from unknown
            raise
        except SlideError:
            raise
        except Exception as error:  # parsing an untrusted file may raise anything
            raise BrokenLayout(f"its directory cannot be read ({error})") from error
        sizes = [(level.width, level.height) for level in self._levels]
        super().__init__(path, vendor=vendor, levels=sizes, stated_mpp=mpp)
        self._file = _SharedFile(path)
        end = max(int((p.offsets + p.counts).max()) for level in self._levels for p in level.planes)
        if end > self._file.size:
            self._file.close()
            raise SlideError(
                path, f"the file ends at byte {self._file.size:,}, its tiles at {end:,}; copy it again"
            )
        largest = max(3 * level.tile_width * level.tile_height for level in self._levels)
        decode = partial(_decoded, self._levels, self._file)  # without self, which would be a cycle
        self._decoded = lru_cache(max(1, _CACHE_BYTES // largest))(decode)

    def read_level(self, level: int, box: Box) -> NDArray[np.uint8]:
        """Read RGB from the tiles that overlap the box."""
        layer = self._levels[level]
        tw, th = layer.tile_width, layer.tile_height
        out = np.empty((box.height, box.width, 3), np.uint8)
        for whole in box.blocks(tw, th):
            part = whole.meet(box)
            tile = self._tile(level, whole.x0 // tw, whole.y0 // th)
            out[part.within(box)] = 255 if tile is None else tile[part.within(whole)]
        return out

    def _tile(self, level: int, column: int, row: int) -> NDArray[np.uint8] | None:
        """Return the pixels of a tile, or None where nothing is stored."""
        layer = self._levels[level]
        try:
            return self._decoded(level, row * layer.across + column)
        except (OSError, OverflowError, SyntaxError, ValueError) as error:
            scale = self.size[0] / layer.width
            x, y = round(column * layer.tile_width * scale), round(row * layer.tile_height * scale)
            raise SlideError(
                self.path,
                f"the tile at x {x}, y {y} (column {column}, row {row} of level {level}) cannot be decoded "
                f"({error}); the rest of the slide can be read; if the original is intact, copy it again",
            ) from error

    def close(self) -> None:
        """Close the file and drop the decoded tiles."""
        super().close()
        self._file.close()
        self._decoded.cache_clear()


def _decoded(
    levels: Sequence[TiffLevel], file: "_SharedFile", level: int, index: int
) -> NDArray[np.uint8] | None:
    layer = levels[level]
    planes = [file.read(int(p.offsets[index]), layer.bytes_of(p, index)) for p in layer.planes]
    if not all(planes):
        return None
    colors = [p.decode(data) for p, data in zip(layer.planes, planes, strict=True)]
    return as_rgb(colors[0] if len(colors) == 1 else np.concatenate(colors, axis=2))


class _SharedFile:
    """A file that several threads can read at once; closed at the latest when it is collected."""

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
