"""Reading the readable part of a damaged slide."""

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.slide import Box, Grid, Slide


def read_undamaged(
    slide: Slide, grid: Grid, box: Box, *, piece_px: int
) -> tuple[NDArray[np.uint8], dict[Box, str]]:
    """Read a box, white where the slide is damaged.

    Damage is located in squares of ``piece_px``, counted from the corner of the grid, so that the same pixels
    are white in every box that contains them.

    Returns:
        The pixels and, for each square that cannot be read, the reason.
    """
    try:
        return slide.read(grid, box), {}
    except SlideError:
        pixels = np.full((box.height, box.width, 3), 255, np.uint8)
    broken = {}
    for piece in box.blocks(piece_px, piece_px):
        part = piece.meet(box)
        try:
            pixels[part.within(box)] = slide.read(grid, piece)[part.within(piece)]
        except SlideError as error:
            broken[piece.meet(grid.box)] = error.problem
    return pixels, broken
