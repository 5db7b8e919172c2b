"""Make what the tutorial starts from, give its commands, and draw its pictures.

python docs/pictures/tutorial.py FOLDER: two synthetic slides of 1 mm² in FOLDER, one cell in five marked
as QuPath would export it; then the commands of docs/tutorial.md; the pictures go beside this file.
"""

import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells, read_cells, subset
from sparseshot.cli import main as sparseshot
from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.images import Box, Grid, open_slide
from sparseshot.prediction import read_prediction

HERE = Path(__file__).parent.resolve()
SIDE_PX, GAP_PX = 448, 6
GREEN, YELLOW = (0, 150, 50), (255, 220, 0)
COMMANDS = (
    "cells a.geojson",
    "train --slide a.tif --marks a.geojson --task detect --out run",
    "predict run b.tif --out found",
    "evaluate run --slide b.tif --marks b_all.geojson",
)


def main(folder: str) -> None:
    """Write everything."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    for name, seed in (("a", 11), ("b", 12)):
        slide = SyntheticTissue(seed=seed, size_px=(4000, 4000), mpp=0.25, tissue_fraction=0.8)
        write_pyramid(slide, f"{name}.tif")
        every = slide.cells()
        (few,) = subset([every], 0.2, seed=0)
        few.write(f"{name}.geojson")
        every.write(f"{name}_all.geojson")
    for command in COMMANDS:
        print(f"$ sparseshot {command}", flush=True)
        if code := sparseshot(command.split()):
            sys.exit(code)
    draw(HERE / "tutorial_marks.webp", "a.tif", read_cells("a.geojson"), YELLOW)
    draw(HERE / "tutorial_found.webp", "b.tif", read_prediction("found/b.tif"), GREEN)


def draw(path: Path, slide_path: str, cells: Cells, colour: tuple[int, int, int]) -> None:
    """Draw the middle of a slide at 0.5 µm, as it is and with circles about cells."""
    with open_slide(slide_path) as slide:
        grid = Grid.over(slide, 0.5)
        x0, y0 = (grid.width - SIDE_PX) // 2, (grid.height - SIDE_PX) // 2
        image: NDArray[np.uint8] = slide.read(grid, Box(x0, y0, x0 + SIDE_PX, y0 + SIDE_PX))
    left = SIDE_PX + GAP_PX
    sheet = Image.new("RGB", (left + SIDE_PX, SIDE_PX), "white")
    marked = Image.fromarray(image)
    pen = ImageDraw.Draw(marked)
    for x, y in cells.xy / grid.downsample - (x0, y0):
        pen.ellipse((x - 7, y - 7, x + 7, y + 7), outline=colour, width=2)
    sheet.paste(Image.fromarray(image), (0, 0))
    sheet.paste(marked, (left, 0))
    sheet.save(path, quality=65, method=6)


if __name__ == "__main__":
    main(sys.argv[1])
