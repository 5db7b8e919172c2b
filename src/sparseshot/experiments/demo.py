"""The demo: an experiment on a synthetic slide, from sparse marks to a page.

::

    OUT/recipe.json           the plan
    OUT/slide.tif             the slide
    OUT/truth.parquet         all of its cells
    OUT/marks.geojson         the marked cells, for QuPath
    OUT/runs/RUN/             the run of a loss, as in any experiment
    OUT/runs/RUN/half/        prediction at threshold 0.5
    OUT/runs/RUN/found/       prediction at the calibrated threshold: QuPath file, density map, counts
    OUT/runs/RUN/cells.parquet  the same cells as one GeoParquet file
    OUT/numbers.json          all numbers of the page
    OUT/index.html            the page; written last
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, nested_subsets, read_cells, write_cells
from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.errors import SparseshotError
from sparseshot.experiments.experiment import LOSS_TITLES, SYNTHETIC, Experiment, Method, Run, Subject
from sparseshot.experiments.results import TRAINING, Result, run_folder
from sparseshot.experiments.running import run_experiment
from sparseshot.files import locked, read_as, write_json
from sparseshot.images import open_slide
from sparseshot.metrics import Matching, match_cells
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.prediction import Measuring, Model, predict_slide, read_prediction
from sparseshot.training import train_run
from sparseshot.work import Event, Report, WorkFolder, ignore
from sparseshot.work.folder import RECIPE

PREDICTIONS = {"half": "half", "calibrated": "found"}
"""Folders of the predictions of a run, by their operating points."""


@dataclass(frozen=True)
class DemoPlan:
    """Everything that determines a demo.

    Attributes:
        losses: their short names; the last one is recommended.
        seed: of the slide and of the choice of marks.
        width_px: of the slide, at 0.25 µm.
        height_px: of the slide.
        tissue_fraction: share of the slide that is tissue.
        marked: share of the cells that are marked.
        steps: of training.
        crop_px: side of a training crop.
        channels: width of the network.
        view_um: side of the square that is shown enlarged.
    """

    losses: tuple[str, ...] = ("ce", "adaptive")
    seed: int = 5
    width_px: int = 6000
    height_px: int = 4500
    tissue_fraction: float = 0.7
    marked: float = 0.2
    steps: int = 150
    crop_px: int = 128
    channels: int = 16
    view_um: float = 150.0

    def tissue(self) -> SyntheticTissue:
        """Return the slide."""
        return SyntheticTissue(
            seed=self.seed, size_px=(self.width_px, self.height_px), tissue_fraction=self.tissue_fraction
        )

    def is_marked(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which of the slide's cells are marked."""
        (chosen,) = nested_subsets(cells, [self.marked], seed=self.seed)[self.marked]
        return chosen

    def run(self, loss: str) -> Run:
        """Return the run of a loss; the full demo has the defaults of `sparseshot train`."""
        settings = {"steps": self.steps, "crop_px": self.crop_px, "width": self.channels}
        method = Method(loss, loss, LOSS_TITLES[loss])
        return Run(Subject(SYNTHETIC), "detect", method, self.marked, 0, "standard", settings)


FULL = DemoPlan()
QUICK = DemoPlan(
    width_px=1600, height_px=1200, tissue_fraction=1.0, steps=40, crop_px=64, channels=8, view_um=100.0
)
"""Takes seconds; shows that everything works, not how well."""


class DemoFolder:
    """Files of a demo, and its plan."""

    def __init__(self, path: Path, plan: DemoPlan) -> None:
        self.path, self.plan = path, plan
        names = ("slide.tif", "truth.parquet", "marks.geojson", "numbers.json", "index.html")
        self.slide, self.truth, self.marks, self.numbers, self.page = (path / name for name in names)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the folder of a demo, with the plan in it."""
        return cls(path, read_as(path / RECIPE, DemoPlan))

    def run(self, loss: str) -> Path:
        """Return the folder of the run of a loss."""
        return run_folder(self.path, self.plan.run(loss).name)

    def remove_temporary_files(self) -> None:
        """Remove temporary files left by interrupted writes."""
        for path in self.path.rglob(".*.part*"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Demo:
    """A finished demo.

    Attributes:
        folder: its files.
        numbers: content of ``numbers.json``.
        was_there: whether it was finished before.
    """

    folder: DemoFolder
    numbers: dict[str, Any]
    was_there: bool


def run_demo(out: Path, plan: DemoPlan = FULL, *, report: Report = ignore) -> Demo:
    """Make the slide, run the experiment, write the page; or finish an interrupted demo.

    After an interruption of any kind the same call resumes.

    Args:
        out: the folder; must be new, empty, or of a demo with the same plan.
        plan: what to make.
        report: receives progress events.

    Raises:
        OutputError: the folder holds something else, or another process is at work in it.
        SparseshotError: a training failed.
    """
    from sparseshot.experiments.demo_page import make_page  # noqa: PLC0415  it draws, a run does not
    from sparseshot.pages import write_page  # noqa: PLC0415

    start = time.perf_counter()
    folder = DemoFolder(out, plan)
    with WorkFolder.claimed(out, plan):
        if folder.numbers.is_file() and folder.page.is_file():
            return Demo(folder, read_as(folder.numbers, dict[str, Any]), was_there=True)
        folder.remove_temporary_files()
        _make_slide(folder, report)
    experiment = Experiment(
        "demo", "Demo", "Every cell, from sparse marks.", tuple(map(plan.run, plan.losses))
    )
    try:
        results = run_experiment(experiment, root=out, out=out, jobs=len(plan.losses), report=report)
    finally:
        folder.remove_temporary_files()
    for result in results:
        if result.metrics is None:
            raise SparseshotError(
                f"{result.run.method.name}: {result.failure}; more is in {result.folder / 'output.txt'}, and "
                "the same command resumes"
            )
    with locked(out):
        report(Event("page", 0, 1, message="drawing"))
        numbers = _numbers(folder, results, seconds=time.perf_counter() - start)
        write_json(folder.numbers, numbers)
        write_page(make_page(folder, numbers), folder.page)
        report(Event("page", 1, 1))
    return Demo(folder, read_as(folder.numbers, dict[str, Any]), was_there=False)


def _make_slide(folder: DemoFolder, report: Report) -> None:
    """Write the slide, all its cells, and the marks."""
    tissue, plan = folder.plan.tissue(), folder.plan
    cells = tissue.cells()
    if not folder.truth.exists():
        write_cells(cells, folder.truth)
    if not folder.marks.exists():
        write_cells(cells[plan.is_marked(cells)], folder.marks)
    if not folder.slide.exists():
        write_pyramid(tissue, folder.slide, report=report)


def find_on_slide(
    run: Run, root: Path, folder: Path, report: Report = ignore
) -> tuple[Checkpoint, dict[str, Any]]:
    """Train on the marks of a demo and predict its slide, or finish an interrupted run.

    Args:
        run: the run.
        root: folder of the demo.
        folder: of the run.
        report: receives the progress of the training.
    """
    start = time.perf_counter()
    demo = DemoFolder.open(root)
    request = run.request(root)
    checkpoint = train_run(request.config, request.data, folder / TRAINING, report=report)
    seconds = {"training": time.perf_counter() - start}
    with open_slide(demo.slide) as slide:
        half = Model.load(checkpoint, threshold=0.5)
        predict_slide(slide, half, folder / PREDICTIONS["half"], measuring=Measuring("none"))
        predict_slide(slide, Model.load(checkpoint), folder / PREDICTIONS["calibrated"])
    write_cells(read_prediction(folder / "found"), folder / "cells.parquet")
    assert checkpoint.threshold is not None, "there are always marks to hold out"
    truth = read_cells(demo.truth)
    marked = demo.plan.is_marked(truth)
    thresholds = {"half": 0.5, "calibrated": checkpoint.threshold}
    scores = {
        point: _scores(*matched(folder, point, truth), marked) | {"threshold": threshold}
        for point, threshold in thresholds.items()
    }
    counts = {"images": 1, "marks": int(marked.sum())}
    return checkpoint, {"evaluation": {"best": None, **scores}, "training": counts, "seconds": seconds}


def matched(folder: Path, point: str, truth: Cells) -> tuple[Cells, Matching]:
    """Return the cells that a run predicts at an operating point, matched with the true ones."""
    cells = read_prediction(folder / PREDICTIONS[point])
    return cells, match_cells(truth, cells, radius_um=MATCH_RADIUS_UM)


def _scores(cells: Cells, matching: Matching, marked: NDArray[np.bool_]) -> dict[str, float | None]:
    """Return scores and counts; ``marked`` selects the true cells that were marked."""
    counts = matching.counts
    return {
        "pooled": counts.f1,
        "precision": counts.precision if len(cells) else None,
        "recall": counts.recall,
        "recall_unmarked": float(np.sum(~marked[matching.truth]) / np.sum(~marked)),
        "found": counts.tp,
        "missed": counts.fn,
        "false": counts.fp,
    }


def _numbers(folder: DemoFolder, results: list[Result], *, seconds: float) -> dict[str, Any]:
    """Return the content of ``numbers.json``."""
    losses: dict[str, Any] = {}
    for result in results:
        assert result.metrics is not None
        scores = result.metrics["evaluation"]
        points = {point: scores[point] | {"f1": scores[point]["pooled"]} for point in PREDICTIONS}
        losses[result.run.method.name] = {"title": result.run.method.title.capitalize(), **points}
    plan = folder.plan
    return {
        "quick": plan.steps < FULL.steps,
        "slide_px": [plan.width_px, plan.height_px],
        "mpp": plan.tissue().mpp,
        "cells": len(read_cells(folder.truth)),
        "marks": len(read_cells(folder.marks)),
        "losses": losses,
        "seconds": seconds,
    }
