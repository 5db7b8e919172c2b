"""From nothing to the page, stage by stage; each skips what is finished."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseshot.cells import write_cells
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.demo.folder import DemoFolder, LossFolder
from sparseshot.demo.judging import judge
from sparseshot.demo.page import make_page
from sparseshot.demo.plan import FULL, DemoPlan
from sparseshot.errors import SparseshotError
from sparseshot.experiments.folders import read_json
from sparseshot.experiments.progress import steps_done
from sparseshot.experiments.running import alone_in, how_it_died, stop, worker_environment
from sparseshot.files import replacing, write_json
from sparseshot.prediction.manifest import Manifest

_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Step:
    """How far a part of the work is.

    Attributes:
        title: of the part.
        done: of ``total``.
        total: how much there is.
        note: what is being done.
    """

    title: str
    done: int
    total: int
    note: str = ""


@dataclass(frozen=True)
class Demo:
    """A finished demo.

    Attributes:
        folder: where everything is.
        numbers: the content of ``numbers.json``.
        was_there: nothing had to be done.
    """

    folder: DemoFolder
    numbers: dict[str, Any]
    was_there: bool


Report = Callable[[Step], None]


def run_demo(out: Path, plan: DemoPlan = FULL, *, report: Report | None = None) -> Demo:
    """Make the slide, train and predict with each loss, judge, write the page; or do what is left of it.

    Killed at any time, the same call goes on.

    Args:
        out: the folder; must be new, empty, or of a demo of the same plan.
        plan: what to make.
        report: called now and then with how far it is.

    Raises:
        OutputError: the folder holds something else, or somebody is at work in it.
        SparseshotError: a training failed.
    """
    start = time.perf_counter()
    folder = DemoFolder.claim(out, plan)
    if folder.is_finished:
        return Demo(folder, dict(read_json(folder.numbers)), was_there=True)
    tell = report or _say_nothing
    with alone_in(out):
        resumed = folder.truth.exists()
        folder.sweep()
        try:
            _make_slide(folder, tell)
            _find_every_cell(folder, tell)
            tell(Step("page", 0, 1, "counting and drawing"))
            judged = judge(folder, seconds=time.perf_counter() - start, resumed=resumed)
            write_json(folder.numbers, judged.numbers.as_json())
            with replacing(folder.page) as temporary:
                temporary.write_text(make_page(folder, judged), encoding="utf-8")
            tell(Step("page", 1, 1))
        finally:
            folder.sweep()
    return Demo(folder, dict(read_json(folder.numbers)), was_there=False)


def _say_nothing(step: Step) -> None:
    """Be told how far it is, and keep quiet."""


def _make_slide(folder: DemoFolder, tell: Report) -> None:
    """Write the slide, all its cells, and the marks of some."""
    tissue, plan = folder.plan.tissue(), folder.plan
    cells = tissue.cells()
    if not folder.truth.exists():
        write_cells(cells, folder.truth)
    if not folder.marks.exists():
        write_cells(cells[plan.is_marked(cells)], folder.marks)
    if not folder.slide.exists():

        def progress(done: int, total: int) -> None:
            tell(Step("slide", done, total, f"{plan.width_px:,} × {plan.height_px:,} pixels"))

        write_pyramid(tissue, folder.slide, progress=progress)


def _find_every_cell(folder: DemoFolder, tell: Report) -> None:
    """Let each loss do its work in a process of its own, all side by side: with few cores they take turns."""
    missing = [loss for loss in folder.plan.losses if not folder.of_loss(loss).speed.exists()]
    working: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for slot, loss in enumerate(missing):
            working[loss] = _start(folder.of_loss(loss), worker_environment(slot, len(missing)))
        while working:
            time.sleep(_LOOK_SECONDS)
            for loss, process in list(working.items()):
                tell(_step(folder, loss))
                if (code := process.poll()) is not None:
                    stop([working.pop(loss)])
                    _check(folder.of_loss(loss), loss, code)
    finally:
        stop(list(working.values()))


def _start(own: LossFolder, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    own.path.mkdir(exist_ok=True)
    with own.output.open("wb") as output:
        return subprocess.Popen(
            worker_command(own.path.name),
            cwd=own.path.parent,
            stdin=subprocess.PIPE,  # never written to; it closes when we end, and the worker ends with it
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )


def worker_command(loss: str) -> Sequence[str]:
    """Return what is started for a loss."""
    return (sys.executable, "-m", "sparseshot.demo.worker", loss)


def _step(folder: DemoFolder, loss: str) -> Step:
    """Tell how far a loss is; each of its two predictions counts as a tenth of its training."""
    own = folder.of_loss(loss)
    done, total = steps_done(own.run), folder.plan.steps
    predictions = [_is_predicted(each) for each in (own.candidates, own.found)]
    note = "starting" if not done else "training" if done < total else "predicting the slide"
    return Step(loss, 10 * done + total * sum(predictions), 10 * total + total * len(predictions), note)


def _is_predicted(folder: Path) -> bool:
    manifest = Manifest.load(folder)
    return manifest is not None and manifest.finished


def _check(own: LossFolder, loss: str, code: int) -> None:
    if code or not own.speed.is_file():
        raise SparseshotError(
            f"{loss}: {how_it_died(code, own.output)}; more is in {own.output}, and the same command goes on"
        )
