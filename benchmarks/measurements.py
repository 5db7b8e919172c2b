"""Cost of measurements: of the neighbours of a million cells, and of whole predictions with and without."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.prediction import MODELS, Repeated
from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.cells.neighbours import neighbour_measurements
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.images import open_slide
from sparseshot.prediction import Measuring, Model, predict_slide

CELLS = 1_000_000
PER_MM2 = 4000
SIZE_PX = 6144


def neighbours() -> None:
    """Time the neighbours of cells as dense as in inflamed tissue."""
    random = np.random.default_rng(0)
    mpp, classes = 0.25, ("a", "b", "c")
    xy = random.uniform(0, 1000 * np.sqrt(CELLS / PER_MM2) / mpp, (CELLS, 2))
    label = random.choice(3, CELLS, p=[0.6, 0.39, 0.01])
    start = time.process_time()
    neighbour_measurements(xy, label, classes=classes, mpp=mpp)
    print_table(["cells", "measured, s"], [(f"{CELLS:,}", time.process_time() - start)])


def predictions(folder: Path) -> None:
    """Compare whole predictions with and without measurements."""
    write_pyramid(replace(Repeated.make(), size=(SIZE_PX, SIZE_PX)), folder / "slide.tif")
    rows = []
    with open_slide(folder / "slide.tif") as slide:
        for task, rounds in (("detect", 3), ("segment", 2)):
            model = Model.load(MODELS[task], device="cpu")
            found: list[int] = []

            def predict(level: str) -> None:
                out = folder / f"{task} {len(found)}"  # noqa: B023  called at once
                measuring = Measuring(level)  # type: ignore[arg-type]
                summary = predict_slide(slide, model, out, measuring=measuring)  # noqa: B023
                found.append(summary.cells)  # noqa: B023

            ways = {level: lambda level=level: predict(level) for level in ("none", "basic", "all")}
            seconds = seconds_in_turns(ways, rounds=rounds)
            ratios = [f"{seconds[level] / seconds['none']:.3f}" for level in ("basic", "all")]
            rows.append([task, f"{found[-1]:,}", seconds["none"], *ratios])
    print_table(["task", "cells", "without, s", "basic, relative", "all, relative"], rows)


def main() -> None:
    neighbours()
    print()
    with tempfile.TemporaryDirectory() as name:
        predictions(Path(name))


if __name__ == "__main__":
    main()
