"""``python -m sparseshot.datasets.synthetic OUT.jpg``: a made slide, a part of it, its cells: one picture."""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.datasets.synthetic.tissue import SyntheticTissue
from sparseshot.files import replacing
from sparseshot.images import read_region

_SIDE_PX = 480


def picture(tissue: SyntheticTissue, x0: int, y0: int) -> NDArray[np.uint8]:
    """Show the whole slide, a region at twice level-0 pixels, and its middle at level 0 with outlines."""
    whole = Image.new("RGB", (_SIDE_PX, _SIDE_PX), "white")
    whole.paste(Image.fromarray(tissue.thumbnail(_SIDE_PX)))
    region = read_region(tissue, x0, y0, _SIDE_PX, _SIDE_PX, mpp=2 * tissue.mpp)
    left, top = x0 + _SIDE_PX // 2, y0 + _SIDE_PX // 2
    close = Image.fromarray(read_region(tissue, left, top, _SIDE_PX, _SIDE_PX))
    draw = ImageDraw.Draw(close)
    margin = 60  # a nucleus whose centre lies outside may reach in
    cells = tissue.cells(
        (left - margin, top - margin, left + _SIDE_PX + margin, top + _SIDE_PX + margin), outlines=True
    )
    assert cells.outline is not None
    assert cells.colors is not None
    for outline, label in zip(cells.outline, cells.label, strict=True):
        corners = np.array(outline.exterior.coords) - (left, top)
        draw.line([tuple(corner) for corner in corners.tolist()], fill=cells.colors[label], width=2)
    return np.hstack([np.asarray(whole), region, np.asarray(close)])


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m sparseshot.datasets.synthetic", description=__doc__)
    parser.add_argument("out", type=Path, help="the picture, .jpg or .png")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=40_000, help="side of the slide in pixels of 0.25 µm")
    parser.add_argument(
        "--at", type=int, nargs=2, default=None, metavar=("X", "Y"), help="corner of the region"
    )
    given = parser.parse_args()
    x0, y0 = given.at or (given.size // 2, given.size // 2)
    tissue = SyntheticTissue(seed=given.seed, size_px=(given.size, given.size))
    with replacing(given.out) as temporary:
        Image.fromarray(picture(tissue, x0, y0)).save(temporary, quality=88)


if __name__ == "__main__":
    main()
