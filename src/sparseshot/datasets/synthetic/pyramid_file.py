"""Writing a slide as a pyramidal TIFF that OpenSlide and QuPath open."""

import os
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, NamedTuple

import simplejpeg

from sparseshot.errors import InputError, SlideError
from sparseshot.files import replacing
from sparseshot.images import Box, Grid, Slide, read_ahead


def write_pyramid(
    slide: Slide,
    path: Path | str,
    *,
    tile_px: int = 512,
    quality: int = 85,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a slide as a tiled JPEG pyramid, tile by tile, so that it is never in memory as a whole.

    Each level has half the columns of the one before, down to one tile. The file is a BigTIFF, because its
    size is not known in advance and a plain TIFF is limited to 4 GiB.

    Args:
        slide: any slide.
        path: must end in ``.tif`` or ``.tiff``.
        tile_px: side of the tiles, a multiple of 16.
        quality: JPEG quality, 1 to 100.
        threads: number of threads that read tiles; None for one per core.
        progress: called with the number of tiles written and the total.
    """
    path = Path(path)
    if path.suffix.lower() not in {".tif", ".tiff"}:
        raise InputError(f"{path}: a pyramid is a TIFF; give a name that ends in .tif")
    if tile_px < 16 or tile_px % 16:
        raise InputError(f"tile_px is {tile_px}; give a multiple of 16, e.g. 512")
    if not 1 <= quality <= 100:
        raise InputError(f"quality is {quality}; give 1 to 100, e.g. 85")
    threads = threads or os.cpu_count() or 1
    grids = _levels(slide, tile_px)
    total = sum(len(_tiles(grid, tile_px)) for grid in grids)
    levels = []
    done = 0
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(
            struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0)
        )  # BigTIFF; the first directory is not placed yet
        for grid in grids:
            level = _Level(grid, [], [])
            boxes = _tiles(grid, tile_px)
            reading = read_ahead(slide, grid, boxes, threads=threads, ahead=2 * threads)
            with closing(reading) as tiles:
                for _, pixels in tiles:
                    if isinstance(pixels, SlideError):
                        raise pixels
                    tile = simplejpeg.encode_jpeg(
                        pixels, quality=quality, colorspace="RGB", colorsubsampling="420"
                    )
                    level.offsets.append(file.tell())
                    level.lengths.append(len(tile))
                    file.write(tile)
                    done += 1
                    if progress:
                        progress(done, total)
            levels.append(level)
        _write_directories(file, levels, tile_px=tile_px, description=slide.name)


class _Level(NamedTuple):
    grid: Grid
    offsets: list[int]
    lengths: list[int]


def _levels(slide: Slide, tile_px: int) -> list[Grid]:
    grids = [Grid.over(slide)]
    while max(grids[-1].width, grids[-1].height) > tile_px:
        grids.append(Grid.over(slide, slide.mpp * 2 ** len(grids)))
    return grids


def _tiles(grid: Grid, tile_px: int) -> list[Box]:
    """Return the tiles of a level, row by row; TIFF tiles are whole, so the last extend past the edge."""
    return [
        Box(x0, y0, x0 + tile_px, y0 + tile_px)
        for y0 in range(0, grid.height, tile_px)
        for x0 in range(0, grid.width, tile_px)
    ]


_ASCII, _SHORT, _LONG, _RATIONAL, _LONG8 = 2, 3, 4, 5, 16
_CODES = {_ASCII: "B", _SHORT: "H", _LONG: "I", _RATIONAL: "I", _LONG8: "Q"}


def _write_directories(file: BinaryIO, levels: Sequence[_Level], *, tile_px: int, description: str) -> None:
    """Write a directory for each level after the tiles; the header points to the first, each to the next."""
    pointer = 8
    for number, level in enumerate(levels):
        per_cm = Fraction(1e4 / level.grid.mpp).limit_denominator(10_000)
        resolution = (per_cm.numerator, per_cm.denominator)
        tags = {
            254: (_LONG, (1 if number else 0,)),  # reduced resolution
            256: (_LONG, (level.grid.width,)),
            257: (_LONG, (level.grid.height,)),
            258: (_SHORT, (8, 8, 8)),
            259: (_SHORT, (7,)),  # JPEG
            262: (_SHORT, (6,)),  # YCbCr
            270: (_ASCII, (*description.encode(), 0)),
            277: (_SHORT, (3,)),
            282: (_RATIONAL, resolution),
            283: (_RATIONAL, resolution),
            284: (_SHORT, (1,)),
            296: (_SHORT, (3,)),  # per centimetre
            305: (_ASCII, (*b"sparseshot", 0)),
            322: (_LONG, (tile_px,)),
            323: (_LONG, (tile_px,)),
            324: (_LONG8, tuple(level.offsets)),
            325: (_LONG8, tuple(level.lengths)),
            530: (_SHORT, (2, 2)),  # chroma at half the resolution
        }
        entries = []
        for tag, (kind, values) in tags.items():
            packed = struct.pack(f"<{len(values)}{_CODES[kind]}", *values)
            count = len(values) // (2 if kind == _RATIONAL else 1)
            if len(packed) > 8:  # too long for the entry itself
                place = _aligned(file)
                file.write(packed)
                packed = struct.pack("<Q", place)
            entries.append(struct.pack("<HHQ8s", tag, kind, count, packed))
        start = _aligned(file)
        file.seek(pointer)
        file.write(struct.pack("<Q", start))
        file.seek(start)
        file.write(struct.pack("<Q", len(entries)) + b"".join(entries) + bytes(8))
        pointer = file.tell() - 8


def _aligned(file: BinaryIO) -> int:
    """Pad the end of the file to a multiple of 8 and return its position."""
    file.seek(0, os.SEEK_END)
    file.write(bytes(-file.tell() % 8))
    return file.tell()
