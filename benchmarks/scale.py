"""Slides of growing size: ``python -m benchmarks.scale 20000 100000``.

Each slide is predicted in its own process, so that peak memory is per slide. A killed run is resumed.
Not part of ``python -m benchmarks``: 100,000 × 100,000 pixels take a quarter of an hour.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import print_table
from sparseshot.cells import subset
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.metrics import match_cells
from sparseshot.models.config import TrainSettings
from sparseshot.prediction import Model, predict_slide, read_prediction
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.held_out import prepare
from sparseshot.training.loop import train
from sparseshot.work import Event

TISSUE_FRACTION = 0.36
MARKED = 0.1
TRAINING_SLIDES, TRAINING_PX = 6, 4096


def slide_of(size_px: int) -> SyntheticTissue:
    return SyntheticTissue(seed=77, size_px=(size_px, size_px), tissue_fraction=TISSUE_FRACTION)


def trained(folder: Path) -> Path:
    """Train a detector from one cell in ten of small synthetic slides, or use a finished run."""
    slides = [
        SyntheticTissue(seed=seed, size_px=(TRAINING_PX, TRAINING_PX), tissue_fraction=1)
        for seed in range(TRAINING_SLIDES)
    ]
    truths = [slide.cells() for slide in slides]
    marks = subset(truths, MARKED, seed=0)
    marked = [AnnotatedSlide(*each) for each in zip(slides, marks, truths, strict=True)]
    config = TrainSettings(task="detect", steps=600)
    train(config, *prepare(marked[1:], marked[:1], config), folder)
    return folder


def peak_mb() -> float:
    """Return the peak memory of this process; getrusage would include that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024


def predict_one(run: Path, size_px: int, out: Path) -> None:
    """Predict one slide, and print what it took."""
    seen: list[Event] = []
    start = time.perf_counter()
    summary = predict_slide(slide_of(size_px), Model.load(run, device="cpu"), out, report=seen.append)
    took = {
        "tiles": seen[-1].done if seen else 0,
        "tile_seconds": seen[-1].values["seconds"] if seen else 0.0,
        "seconds": time.perf_counter() - start,
        "tissue_mm2": summary.tissue_mm2,
        "rss_mb": peak_mb(),
    }
    print(json.dumps(took))


def row_of(run: Path, size_px: int, work: Path) -> list[object]:
    out = work / f"{size_px}"
    command = [sys.executable, "-m", "benchmarks.scale", "--one", str(size_px), "--run", str(run)]
    output = subprocess.run(
        [*command, "--work", str(work)], check=True, capture_output=True, text=True
    ).stdout
    took = json.loads(output.splitlines()[-1])
    if took["tiles"]:
        (work / f"{size_px}.json").write_text(output.splitlines()[-1])
    else:  # it was finished before
        took = json.loads((work / f"{size_px}.json").read_text())
    truth = slide_of(size_px).cells()
    counts = match_cells(truth, read_prediction(out)).counts
    disk = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return [
        f"{size_px:,}²",
        f"{took['tissue_mm2']:.0f}",
        took["tiles"],
        f"{len(truth):,}",
        f"{counts.tp + counts.fp:,}",
        counts.f1,
        took["tile_seconds"] / took["tiles"],
        took["seconds"] / 60,
        f"{took['rss_mb']:.0f}",
        f"{disk / 1e6:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("sizes", nargs="*", type=int, default=[20_000, 40_000])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "sparseshot-scale")
    parser.add_argument("--run", type=Path, help="folder of a finished run; left out, one is trained")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    if asked.one is not None:
        predict_one(asked.run, asked.one, asked.work / str(asked.one))
        return
    run = asked.run or trained(asked.work / "run")
    rows = [row_of(run, size, asked.work) for size in asked.sizes]
    header = [
        "pixels",
        "tissue mm²",
        "tiles",
        "true cells",
        "found",
        "F1",
        "s a tile",
        "minutes",
        "peak MB",
        "disk MB",
    ]
    print_table(header, rows)
    if len(rows) > 1:
        per_tile, peak = (np.array([float(str(row[column])) for row in rows]) for column in (6, 8))
        apart, growth = per_tile.max() / per_tile.min() - 1, peak[-1] / peak[0]
        print(f"\nTime a tile: {apart:.0%} apart; peak memory {growth:.2f}×.")


if __name__ == "__main__":
    main()
