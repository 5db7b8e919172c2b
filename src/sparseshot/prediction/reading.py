"""Reading the tiles of a slide, and the readable rest of damaged tiles."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.readahead import read_ahead
from sparseshot.images.slide import Box, Grid, Slide

PIECE_PX = 64
"""Damage is located in squares of this side, counted from the corner of the grid."""


def read_tiles(
    slide: Slide, boxes: Iterable[Box], *, mpp: float, threads: int, ahead: int
) -> Generator[tuple[NDArray[np.uint8], dict[Box, str]], None, None]:
    """Read boxes in order, ahead of their use; white where the slide is damaged.

    Yields the pixels and, for each square that cannot be read, the reason.
    """
    grid = Grid.over(slide, mpp)
    with closing(read_ahead(slide, grid, boxes, threads=threads, ahead=ahead)) as tiles:
        for box, pixels in tiles:
            yield _read_in_pieces(slide, grid, box) if isinstance(pixels, SlideError) else (pixels, {})


def _read_in_pieces(slide: Slide, grid: Grid, box: Box) -> tuple[NDArray[np.uint8], dict[Box, str]]:
    """Read whole squares, so that the same pixels are white in every box that contains them."""
    pixels = np.full((box.height, box.width, 3), 255, np.uint8)
    broken = {}
    for piece in _pieces(box):
        part = piece.meet(box)
        try:
            read = slide.read(grid, piece)
        except SlideError as error:
            broken[piece.meet(grid.box)] = error.problem
            continue
        pixels[part.within(box)] = read[part.within(piece)]
    return pixels, broken


def any_readable(slide: Slide, grid: Grid, box: Box) -> bool:
    """Return whether any of the squares that meet a box can be read."""
    for piece in _pieces(box):
        try:
            slide.read(grid, piece)
        except SlideError:
            continue
        return True
    return False


def _pieces(box: Box) -> Iterator[Box]:
    for y in range(box.y0 // PIECE_PX * PIECE_PX, box.y1, PIECE_PX):
        for x in range(box.x0 // PIECE_PX * PIECE_PX, box.x1, PIECE_PX):
            yield Box(x, y, x + PIECE_PX, y + PIECE_PX)
