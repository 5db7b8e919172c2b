"""How long a round takes: ten new marks, ``train --from``, and a fresh prediction of 2,000 × 2,000 pixels.

Both are processes of their own, as a user starts them. The slides are of 0.5 µm/px: a synthetic one, of
which every cell is known, and a part of CMU-1-Small-Region, if it is in ``$SPARSESHOT_DATA``; on that one,
marks are chosen among what the starter finds, so it has no score.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.timing import print_table
from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import Box, Grid, open_slide
from sparseshot.metrics import match_cells
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import look_at
from sparseshot.prediction import Model, read_prediction

SIDE_PX, MPP = 2000, 0.5
FIRST, NEW, ROUNDS = 60, 10, 3


def main() -> None:
    """Print the seconds of training and prediction, and F1 where it is known, round by round."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, cells, is_truth in _slides(Path(folder)):
            rows += _rounds(Path(folder), name, cells, is_truth=is_truth)
    header = ("slide", "marks", "train, s", "predict, s", "both, s", "F1")
    print_table(header, rows)


def _slides(folder: Path) -> list[tuple[str, Cells, bool]]:
    """Write the slides; return their names, the cells to mark, and whether these are all."""
    tissue = SyntheticTissue(seed=11, size_px=(SIDE_PX, SIDE_PX), mpp=MPP, tissue_fraction=1.0, variety=3.0)
    grid = Grid.over(tissue)
    Image.fromarray(tissue.read(grid, grid.box)).save(folder / "synthetic.png")
    made = [("synthetic", Cells(tissue.cells().xy, mpp=MPP), True)]
    real = Path(os.environ.get("SPARSESHOT_DATA", "../shared/data"), "slides", "CMU-1-Small-Region.svs")
    if real.is_file():
        with open_slide(real) as slide:
            pixels = slide.read(Grid.over(slide, MPP), Box(100, 400, 100 + SIDE_PX, 400 + SIDE_PX))
        Image.fromarray(pixels).save(folder / "CMU-1.png")
        model = Model.load("starter", device="cpu")
        with open_slide(folder / "CMU-1.png", mpp=MPP) as slide:
            frame = SlideFrame.over(slide, mpp=MPP, classes=model.classes, colors=())
            found = look_at(model.network, model.task, slide, frame, threshold=0.8).cells
        made.append(("CMU-1", Cells(found.xy, mpp=MPP), False))
    return made


def _rounds(folder: Path, name: str, cells: Cells, *, is_truth: bool) -> list[tuple[object, ...]]:
    order = np.random.default_rng(0).permutation(len(cells))
    rows: list[tuple[object, ...]] = []
    for number in range(ROUNDS + 1):
        count = FIRST + number * NEW
        marks, run, found = (folder / f"{name} {number}{end}" for end in (".geojson", "", " found"))
        cells[np.sort(order[:count])].write(marks)
        slide, start = folder / f"{name}.png", folder / f"{name} {number - 1}" if number else "starter"
        train = _seconds(
            "train", "--slide", slide, "--marks", marks, "--mpp", MPP, "--from", start, "--out", run
        )
        predict = _seconds("predict", run, slide, "--mpp", MPP, "--out", found)
        f1: object = "–"
        if is_truth:
            f1 = match_cells(cells, read_prediction(found / slide.name)).counts.f1
        rows.append((name, count, train, predict, train + predict, f1))
    return rows


def _seconds(*command: object) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "sparseshot", *map(str, command)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
