"""Reading the tiles of a slide, and the readable rest of damaged tiles."""

from collections.abc import Generator, Iterable
from contextlib import closing, suppress

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.damaged import read_undamaged
from sparseshot.images.readahead import read_ahead
from sparseshot.images.slide import Box, Grid, Slide

PIECE_PX = 64
"""Damage is located in squares of this side."""


def read_tiles(
    slide: Slide, boxes: Iterable[Box], *, mpp: float, threads: int, ahead: int
) -> Generator[tuple[NDArray[np.uint8], dict[Box, str]], None, None]:
    """Read boxes in order, ahead of their use; white where the slide is damaged.

    Yields the pixels and, for each square that cannot be read, the reason.
    """
    grid = Grid.over(slide, mpp)
    with closing(read_ahead(slide, grid, boxes, threads=threads, ahead=ahead)) as tiles:
        for box, pixels in tiles:
            if isinstance(pixels, SlideError):
                yield read_undamaged(slide, grid, box, piece_px=PIECE_PX)
            else:
                yield pixels, {}


def any_readable(slide: Slide, grid: Grid, box: Box) -> bool:
    """Return whether any of the squares that meet a box can be read."""
    for piece in box.blocks(PIECE_PX, PIECE_PX):  # whole, because a part of a bad square may be readable
        with suppress(SlideError):
            slide.read(grid, piece)
            return True
    return False
