"""Draw a synthetic slide, a region of it, and the middle of that region with the outlines of its cells.

python docs/pictures/synthetic.py OUT.webp SEED
"""

import sys

import numpy as np
from PIL import Image, ImageDraw

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import read_region

SIDE_PX = 480
SIZE_PX = 40_000
MARGIN_PX = 60  # a nucleus whose centre lies outside may reach in


def main(out: str, seed: str) -> None:
    """Write the picture."""
    tissue = SyntheticTissue(seed=int(seed), size_px=(SIZE_PX, SIZE_PX))
    corner = SIZE_PX // 2
    region = read_region(tissue, corner, corner, SIDE_PX, SIDE_PX, mpp=2 * tissue.mpp)
    middle = corner + SIDE_PX // 2
    close = Image.fromarray(read_region(tissue, middle, middle, SIDE_PX, SIDE_PX))
    draw = ImageDraw.Draw(close)
    low, high = middle - MARGIN_PX, middle + SIDE_PX + MARGIN_PX
    cells = tissue.cells((low, low, high, high), outlines=True)
    assert cells.outline is not None
    assert cells.colors is not None
    for outline, label in zip(cells.outline, cells.label, strict=True):
        corners = np.array(outline.exterior.coords) - middle
        draw.line([tuple(xy) for xy in corners.tolist()], fill=cells.colors[label], width=2)
    Image.fromarray(np.hstack([tissue.thumbnail(SIDE_PX), region, np.asarray(close)])).save(
        out, quality=65, method=6
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
