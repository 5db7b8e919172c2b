"""The stages of the demo; each skips what is finished."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseshot.cells import write_cells
from sparseshot.cluster.executor import CommandJob, exit_message
from sparseshot.cluster.local import LocalProcesses
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.demo.demo_folder import FULL, DemoFolder, DemoPlan
from sparseshot.demo.demo_page import make_page
from sparseshot.demo.judging import judge
from sparseshot.errors import SparseshotError
from sparseshot.experiments.running import steps_done
from sparseshot.files import locked, read_as, replacing, write_json
from sparseshot.prediction.manifest import Manifest
from sparseshot.terminal import Begin, no_progress


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


def run_demo(out: Path, plan: DemoPlan = FULL, *, begin: Begin = no_progress) -> Demo:
    """Make the slide, train and predict with each loss, judge, write the page; or finish an interrupted demo.

    After an interruption of any kind the same call resumes.

    Args:
        out: the folder; must be new, empty, or of a demo with the same plan.
        plan: what to make.
        begin: shows progress.

    Raises:
        OutputError: the folder holds something else, or another process is at work in it.
        SparseshotError: a training failed.
    """
    start = time.perf_counter()
    folder = DemoFolder.claim(out, plan)
    if folder.is_finished:
        return Demo(folder, read_as(folder.numbers, dict[str, Any]), was_there=True)
    with locked(out):
        resumed = folder.truth.exists()
        folder.remove_temporary_files()
        try:
            _make_slide(folder, begin)
            _find_cells(folder, begin)
            report = begin("page", 1, note="counting and drawing")
            judged = judge(folder, seconds=time.perf_counter() - start, resumed=resumed)
            write_json(folder.numbers, judged.numbers)
            with replacing(folder.page) as temporary:
                temporary.write_text(make_page(folder, judged), encoding="utf-8")
            report(1)
        finally:
            folder.remove_temporary_files()
    return Demo(folder, read_as(folder.numbers, dict[str, Any]), was_there=False)


def _make_slide(folder: DemoFolder, begin: Begin) -> None:
    """Write the slide, all its cells, and the marks."""
    tissue, plan = folder.plan.tissue(), folder.plan
    cells = tissue.cells()
    if not folder.truth.exists():
        write_cells(cells, folder.truth)
    if not folder.marks.exists():
        write_cells(cells[plan.is_marked(cells)], folder.marks)
    if not folder.slide.exists():
        report = begin("slide", note=f"{plan.width_px:,} × {plan.height_px:,} pixels")
        write_pyramid(tissue, folder.slide, progress=report)


def _find_cells(folder: DemoFolder, begin: Begin) -> None:
    """Train and predict with each loss in a process of its own, all at the same time."""
    missing = [loss for loss in folder.plan.losses if not folder.of_loss(loss).speed.exists()]
    reports = {loss: begin(loss) for loss in missing}
    with closing(LocalProcesses(len(missing)).run(_jobs(folder, missing))) as statuses:
        for job, _, code in statuses:
            reports[job.name](*_progress(folder, job.name))
            if code or (code == 0 and not folder.of_loss(job.name).speed.is_file()):
                message = exit_message(code, job.output)
                raise SparseshotError(
                    f"{job.name}: {message}; more is in {job.output}, and the same command resumes"
                )


def _jobs(folder: DemoFolder, losses: Sequence[str]) -> Iterator[CommandJob]:
    for loss in losses:
        own = folder.of_loss(loss)
        own.path.mkdir(exist_ok=True)
        yield CommandJob(loss, worker_command(loss), own.output.resolve(), folder.path)


def worker_command(loss: str) -> Sequence[str]:
    """Return the command that trains and predicts with a loss."""
    return (sys.executable, "-m", "sparseshot.demo.loss_worker", loss)


def _progress(folder: DemoFolder, loss: str) -> tuple[int, int, str]:
    """Return done, total and note of a loss; a prediction counts as a tenth of the training."""
    own = folder.of_loss(loss)
    done, total = steps_done(own.run), folder.plan.steps
    manifests = [Manifest.load(each) for each in (own.candidates, own.found)]
    predicted = sum(manifest is not None and manifest.finished for manifest in manifests)
    note = "starting" if not done else "training" if done < total else "predicting the slide"
    return 10 * done + total * predicted, 10 * total + total * len(manifests), note
