"""Tiled TIFF without OpenSlide: Aperio SVS, pyramidal TIFF, OME-TIFF.

OpenSlide draws every tile onto a canvas, which costs several times as much as decoding. Where a level is
not a whole fraction of level 0, it interpolates, differently for every origin of a read. Here tiles are
decoded and copied, so a pixel of a level is the pixel that is stored.
"""

import logging
import math
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.codecs import BrokenLayout, Decoder, UnknownLayout, tile_decoder
from sparseshot.images.pixel_size import tiff_mpp
from sparseshot.images.plain_image import ome_channels, samples_shown
from sparseshot.images.pyramid import BlockSlide
from sparseshot.images.slide import Box
from sparseshot.images.tiff_check import opened_tiff

_MAX_TILE_PX = 2**26

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
        file_number = os.open(path, os.O_RDONLY)  # several threads can read at once
        self._close_file = weakref.finalize(self, os.close, file_number)
        end = max(int((p.offsets + p.counts).max()) for level in levels for p in level.planes)
        if end > (size := path.stat().st_size):
            self._close_file()
            raise SlideError(path, f"the file ends at byte {size:,}, its tiles at {end:,}; copy it again")
        super().__init__(
            path,
            vendor=vendor,
            levels=[(level.width, level.height) for level in levels],
            blocks=[(level.tile_width, level.tile_height) for level in levels],
            decode=lambda level, box: levels[level].decoded(file_number, box),
            stated_mpp=mpp,
            block_name="tile",
            is_inverted=first.photometric == 0,
            channels=ome_channels(first.description) if vendor == "ome-tiff" and is_apart else None,
        )

    def close(self) -> None:
        """Close the file and drop the decoded tiles."""
        super().close()
        self._close_file()


@dataclass(frozen=True)
class Plane:
    """The tiles of one level, or of one colour of it where colours are stored separately."""

    offsets: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    decode: Decoder
    samples: int  # of a pixel that are shown; further ones are neither colours nor opacity


@dataclass(frozen=True)
class TiffLevel:
    """One level: its size, the size of its tiles, and their positions in the file."""

    width: int
    height: int
    tile_width: int
    tile_height: int
    planes: tuple[Plane, ...]

    def decoded(self, file_number: int, box: Box) -> NDArray[Any] | None:
        """Return the values of the tile that begins at the corner of a box; None where none is stored."""
        across = math.ceil(self.width / self.tile_width)
        index = box.y0 // self.tile_height * across + box.x0 // self.tile_width
        colors = []
        for plane in self.planes:
            count = int(plane.counts[index])
            if count > 16 * self.tile_width * self.tile_height + 2**16:  # more than any codec makes
                raise ValueError(f"{count:,} bytes for {self.tile_width} × {self.tile_height} pixels")
            if not (data := os.pread(file_number, count, int(plane.offsets[index]))):
                return None
            colors.append(plane.decode(data)[:, :, : plane.samples])
        return colors[0] if len(colors) == 1 else np.concatenate(colors, axis=2)


def is_aperio(page: tifffile.TiffPage) -> bool:
    """Return whether Aperio's software wrote the page."""
    return page.description.startswith("Aperio")


def tiff_levels(file: tifffile.TiffFile) -> tuple[TiffLevel, ...]:
    """Find the levels, the largest first, or raise :class:`UnknownLayout`."""
    if file.is_ome:
        groups = _ome_groups(file)
    else:
        first = file.pages.first
        others = [page for page in file.pages if isinstance(page, tifffile.TiffPage) and page is not first]
        others += [page for page in first.pages or () if isinstance(page, tifffile.TiffPage)]
        groups = [[page] for page in [first, *others] if page is first or _is_reduced(page, first)]
    levels = sorted((_level(group) for group in groups), key=lambda level: -level.width)
    aperio_holes = is_aperio(file.pages.first) and any(0 in p.counts for lv in levels for p in lv.planes)
    if aperio_holes:  # OpenSlide fills them from a finer level
        raise UnknownLayout("tiles are missing from it")
    return tuple(levels)


def _is_reduced(page: tifffile.TiffPage, first: tifffile.TiffPage) -> bool:
    """Return whether a page is a smaller copy of the first, not a label, a macro image or another slice."""
    if not page.is_tiled or page.imagewidth >= first.imagewidth or page.dtype != first.dtype:
        return False
    across, down = first.imagewidth / page.imagewidth, first.imagelength / page.imagelength
    return (page.is_reduced or is_aperio(first)) and abs(across / down - 1) <= max(
        0.02, 2 / page.imagewidth, 2 / page.imagelength
    )


def _ome_groups(file: tifffile.TiffFile) -> list[list[tifffile.TiffPage]]:
    """Return the pages of each level of the first image: one, or one for each of three colours."""
    groups = []
    for level in file.series[0].levels:
        axes, shape = level.axes, level.shape
        pages = [page for page in level.pages if page is not None]
        colors = dict(zip(axes, shape, strict=True)).get("C", 1)
        if axes not in {"YX", "YXS", "SYX", "CYX"} or len(pages) not in {1, 3} or colors not in {1, 3}:
            sizes = ", ".join(f"{axis} {size}" for axis, size in zip(axes, shape, strict=True))
            raise SlideError(
                Path(file.filehandle.path),
                f"its first image has axes {sizes}; export one plane of a bright-field image in RGB",
            )
        groups.append([page if isinstance(page, tifffile.TiffPage) else page.aspage() for page in pages])
    return groups


def _level(pages: Sequence[tifffile.TiffPage]) -> TiffLevel:
    page = pages[0]
    if not page.is_tiled:
        raise UnknownLayout("it is not tiled")
    if page.imagewidth < 1 or page.imagelength < 1:
        raise BrokenLayout(f"it is {page.imagewidth} × {page.imagelength} pixels")
    if not 0 < page.tilewidth * page.tilelength <= _MAX_TILE_PX:
        raise BrokenLayout(f"its tiles are {page.tilewidth} × {page.tilelength} pixels")
    tiles = math.ceil(page.imagewidth / page.tilewidth) * math.ceil(page.imagelength / page.tilelength)
    planes = tuple(plane for one in pages for plane in _planes(one, tiles))
    if len(planes) not in {1, 3}:
        raise UnknownLayout(f"it stores {len(planes)} colours separately")
    return TiffLevel(page.imagewidth, page.imagelength, page.tilewidth, page.tilelength, planes)


def _planes(page: tifffile.TiffPage, tiles: int) -> list[Plane]:
    decode = tile_decoder(page)
    offsets, counts = (np.array(v, dtype=np.uint64) for v in (page.dataoffsets, page.databytecounts))
    number = page.samplesperpixel if page.planarconfig == 2 else 1
    if len(offsets) != tiles * number or len(counts) != len(offsets):
        raise BrokenLayout(f"its directory lists {len(offsets)} tiles where there should be {tiles * number}")
    parts = zip(np.split(offsets, number), np.split(counts, number), strict=True)
    return [Plane(offset, count, decode, samples_shown(page)) for offset, count in parts]
