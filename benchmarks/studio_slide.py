"""A slide of any size in a small file, and a result of any number of cells on it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import simplejpeg
import tifffile
from tests.studio.small_project import made_result

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import Box, Grid

TILE_PX, MPP = 256, 0.25
_KINDS = 16
_JPEG, _YCBCR = 7, 6
_FEATURES = 64


def write_repeated_slide(path: Path, side_px: int) -> None:
    """Write a pyramid of synthetic tissue in which the tiles of a level are 16 tiles again and again.

    They are stored once, and the directory of the TIFF refers to each many times; to a reader it is a slide
    like any other.
    """
    tissue = SyntheticTissue(seed=1, size_px=(8192, 8192), mpp=MPP, tissue_fraction=1.0)
    sides = [side_px]
    while sides[-1] > TILE_PX:
        sides.append(-(-sides[-1] // 2))
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        for level, side in enumerate(sides):
            number = (-(-side // TILE_PX)) ** 2
            writer.write(
                _tiles(tissue, level, number),
                shape=(side, side, 3),
                dtype=np.uint8,
                tile=(TILE_PX, TILE_PX),
                photometric="rgb",
                compression="zlib",
                subfiletype=int(level > 0),
                resolution=(1e4 / (MPP * 2**level), 1e4 / (MPP * 2**level)),
                resolutionunit="CENTIMETER",
                metadata=None,
                extratags=[(530, "H", 2, (2, 2), True)],
            )
    with tifffile.TiffFile(path, mode="r+") as file:
        for page in [each.aspage() for each in file.pages]:
            kinds = [i % min(_KINDS, len(page.dataoffsets)) for i in range(len(page.dataoffsets))]
            page.tags["TileOffsets"].overwrite([page.dataoffsets[kind] for kind in kinds])
            page.tags["TileByteCounts"].overwrite([page.databytecounts[kind] for kind in kinds])
            page.tags["Compression"].overwrite(_JPEG)
            page.tags["PhotometricInterpretation"].overwrite(_YCBCR)


def _tiles(tissue: SyntheticTissue, level: int, number: int) -> Iterator[bytes]:
    grid = Grid.over(tissue, MPP * 2 ** min(level, 5))
    encode = partial(simplejpeg.encode_jpeg, quality=85, colorspace="RGB", colorsubsampling="420")
    for i in range(number):
        if i >= _KINDS:
            yield b"x"  # its place in the directory is overwritten
            continue
        x, y = (i % 4) * TILE_PX % grid.width, (i // 4) * TILE_PX % grid.height
        yield encode(tissue.read(grid, Box(x, y, x + TILE_PX, y + TILE_PX)))


def write_result(folder: Path, slide: Path, cells: int, side_px: int) -> None:
    """Write cells at random places of a slide, with features, as ``predict`` would."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, side_px, (cells, 2))
    features = rng.standard_normal((cells, _FEATURES), np.float32)
    made_result(folder, slide, Cells(xy, score=rng.uniform(0.1, 1, cells), mpp=MPP), features)
