"""Writing a slide as a pyramidal TIFF that OpenSlide and QuPath open."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import simplejpeg
import tifffile

from sparseshot.errors import InputError, SlideError
from sparseshot.files import replacing
from sparseshot.images import Grid, Slide, read_ahead
from sparseshot.work import Event, Report, ignore

_JPEG, _YCBCR = 7, 6
_HALF_CHROMA = (530, "H", 2, (2, 2), True)  # TIFF tag


def write_pyramid(
    slide: Slide,
    path: Path | str,
    *,
    tile_px: int = 512,
    quality: int = 85,
    threads: int | None = None,
    report: Report = ignore,
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
        report: receives progress events, in tiles.
    """
    path = Path(path)
    if path.suffix.lower() not in {".tif", ".tiff"}:
        raise InputError(f"{path}: a pyramid is a TIFF; give a name that ends in .tif")
    if tile_px < 16 or tile_px % 16:
        raise InputError(f"tile_px is {tile_px}; give a multiple of 16, e.g. 512")
    if not 1 <= quality <= 100:
        raise InputError(f"quality is {quality}; give 1 to 100, e.g. 85")
    threads = threads or os.cpu_count() or 1
    grids = [Grid.over(slide)]
    while max(grids[-1].width, grids[-1].height) > tile_px:
        grids.append(Grid.over(slide, slide.mpp * 2 ** len(grids)))
    # TIFF tiles are whole, so the last extend past the edge.
    boxes = {grid: list(grid.box.blocks(tile_px, tile_px)) for grid in grids}
    total, done = sum(map(len, boxes.values())), 0
    size = f"{grids[0].width:,} × {grids[0].height:,} pixels"

    def tiles(grid: Grid) -> Iterator[bytes]:
        nonlocal done
        with closing(read_ahead(slide, grid, boxes[grid], threads=threads, ahead=2 * threads)) as read:
            for _, pixels in read:
                if isinstance(pixels, SlideError):
                    raise pixels
                done += 1
                report(Event("slide", done, total, message=size))
                yield simplejpeg.encode_jpeg(
                    pixels, quality=quality, colorspace="RGB", colorsubsampling="420"
                )

    with replacing(path) as temporary:
        with tifffile.TiffWriter(temporary, bigtiff=True) as writer:
            for number, grid in enumerate(grids):
                writer.write(
                    tiles(grid),
                    shape=(grid.height, grid.width, 3),
                    dtype=np.uint8,
                    tile=(tile_px, tile_px),
                    photometric="rgb",
                    compression="zlib",
                    subfiletype=int(number > 0),
                    resolution=(1e4 / grid.mpp, 1e4 / grid.mpp),
                    resolutionunit="CENTIMETER",
                    description=slide.name.encode(errors="replace"),  # as text only ASCII is taken
                    software="sparseshot",
                    metadata=None,
                    extratags=[_HALF_CHROMA],
                )
        # tifffile takes packed tiles of any kind, but declares only those that it could pack itself.
        with tifffile.TiffFile(temporary, mode="r+") as file:
            for page in file.pages:
                page.aspage().tags["Compression"].overwrite(_JPEG)
                page.aspage().tags["PhotometricInterpretation"].overwrite(_YCBCR)
