"""Tiled TIFF without OpenSlide: Aperio SVS, pyramidal TIFF, OME-TIFF.

OpenSlide draws every tile onto a canvas, which costs several times as much as decoding. Where a level is
not a whole fraction of level 0, it interpolates, differently for every origin of a read. Here tiles are
decoded and copied, so a pixel of a level is the pixel that is stored.
"""

import logging
import os
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.codecs import BrokenLayout, UnknownLayout
from sparseshot.images.pixel_size import tiff_mpp
from sparseshot.images.plain_image import ome_channels
from sparseshot.images.pyramid import BlockSlide
from sparseshot.images.slide import Box
from sparseshot.images.tiff_check import opened_tiff
from sparseshot.images.tiff_directory import TiffLevel, is_aperio, tiff_levels

# Without a handler, its log would go to the terminal.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


class TiledTiff(BlockSlide):
    """A tiled TIFF.

    Raises :class:`UnknownLayout` for files it does not read, for which OpenSlide is tried next.
    """

    def __init__(self, path: Path) -> None:
        try:
            with opened_tiff(path) as file:
                first = file.pages.first
                vendor = "aperio" if is_aperio(first) else "ome-tiff" if file.is_ome else "tiff"
                levels = tiff_levels(file)
                is_apart = first.samplesperpixel == 1 and len(levels[0].planes) == 3
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
        self._file = _SharedFile(path)
        end = max(int((p.offsets + p.counts).max()) for level in levels for p in level.planes)
        if end > self._file.size:
            self._file.close()
            raise SlideError(
                path, f"the file ends at byte {self._file.size:,}, its tiles at {end:,}; copy it again"
            )
        super().__init__(
            path,
            vendor=vendor,
            levels=[(level.width, level.height) for level in levels],
            blocks=[(level.tile_width, level.tile_height) for level in levels],
            decode=partial(_decoded, levels, self._file),
            stated_mpp=mpp,
            block_name="tile",
            is_inverted=first.photometric == 0,
            channels=ome_channels(first.description) if vendor == "ome-tiff" and is_apart else None,
        )

    def close(self) -> None:
        """Close the file and drop the decoded tiles."""
        super().close()
        self._file.close()


def _decoded(levels: Sequence[TiffLevel], file: "_SharedFile", level: int, box: Box) -> NDArray[Any] | None:
    layer = levels[level]
    index = box.y0 // layer.tile_height * layer.across + box.x0 // layer.tile_width
    stored = [file.read(int(p.offsets[index]), layer.bytes_of(p, index)) for p in layer.planes]
    if not all(stored):
        return None
    colors = [p.decode(data)[:, :, : p.samples] for p, data in zip(layer.planes, stored, strict=True)]
    return colors[0] if len(colors) == 1 else np.concatenate(colors, axis=2)


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
