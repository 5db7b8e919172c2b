"""Draw what `sparseshot predict` found on a part of a slide.

python docs/pictures/slide_cells.py SLIDE PREDICTION OUT.webp X0 Y0: 512 × 512 pixels of 0.5 µm from level-0
pixel X0, Y0 on, once as they are and once with what was found.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from sparseshot.cells import Cells, read_cells
from sparseshot.images import Box, Grid, open_slide

SIDE = 512


def main(slide_path: str, prediction: str, out: str, x0: str, y0: str) -> None:
    """Write the picture."""
    cells = Cells.concatenate(
        read_cells(shard) for shard in sorted(Path(prediction, "cells").glob("*.parquet"))
    )
    with open_slide(slide_path) as slide:
        grid = Grid.over(slide, 0.5)
        corner = np.array([float(x0), float(y0)]) / grid.downsample
        col, row = corner.astype(int)
        image = slide.read(grid, Box(col, row, col + SIDE, row + SIDE))
    sheet = Image.new("RGB", (2 * SIDE + 6, SIDE), "white")
    sheet.paste(Image.fromarray(image), (0, 0))
    sheet.paste(Image.fromarray(image), (SIDE + 6, 0))
    draw = ImageDraw.Draw(sheet)
    for x, y in cells.xy / grid.downsample - (col, row):
        if 0 <= x < SIDE and 0 <= y < SIDE:
            draw.ellipse((SIDE + 6 + x - 4, y - 4, SIDE + 6 + x + 4, y + 4), outline=(0, 200, 60), width=2)
    sheet.resize((824, 410), Image.Resampling.LANCZOS).save(out, quality=55, method=6)


if __name__ == "__main__":
    main(*sys.argv[1:])
