"""Training and prediction in a process of their own, as the studio sees them."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Literal

from sparseshot.errors import InputError, OutputError, SparseshotError
from sparseshot.files import locked, read_as, write_json
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.results import Result
from sparseshot.training.logs import read_log

RUNS, RUN, FOUND, MARKS, JOB, STATE, STOP, SAID = (
    "runs",
    "model",
    "found",
    "marks",
    "job.json",
    "state.json",
    "stop",
    "worker.log",
)
_SLOWEST_START_S = 120

Stage = Literal["waiting", "training", "view", "slides", "done", "stopped", "failed"]
ENDED = {"done", "stopped", "failed"}


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    Attributes:
        number: of the run.
        slide: id of the slide in view.
        view: the part in view, in level-0 pixels; None for nothing in particular.
        start: model to start from: a path, or a name that training knows.
        marks: number of marks it learns from.
        steps: optimiser steps; 0: chosen by training.
    """

    number: int
    slide: str
    view: tuple[float, float, float, float] | None
    start: str
    marks: int
    steps: int = 0


@dataclass(frozen=True)
class State:
    """How far a worker has got.

    Attributes:
        stage: what it is doing.
        message: a sentence about it, or the error.
        share: done of the present stage, 0 to 1.
        threshold: calibrated in training.
        begun: time of the beginning.
        changed: time of this state.
    """

    stage: Stage = "waiting"
    message: str = ""
    share: float = 0.0
    threshold: float = 0.5
    begun: float = 0.0
    changed: float = 0.0


@dataclass
class Jobs:
    """The runs of a project. One is at work at a time.

    Attributes:
        project: the project.
        book: its marks.
        steps: optimiser steps of every run; 0: chosen by training.
    """

    project: Project
    book: MarkBook
    steps: int = 0
    _spare: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _mutex: RLock = field(default_factory=RLock, init=False)

    def folder(self, number: int) -> Path:
        """Return the folder of a run."""
        return self.project.folder / RUNS / f"{number:04d}"

    def history(self) -> list[tuple[Job, State]]:
        """Return all runs, the latest first."""
        folder = self.project.folder / RUNS
        numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()]
        known = [each for each in sorted(numbers, reverse=True) if (self.folder(each) / JOB).is_file()]
        return [(read_as(self.folder(each) / JOB, Job), self.state(each)) for each in known]

    def state(self, number: int) -> State:
        """Return how far a run has got; one whose process died without a word has failed."""
        folder = self.folder(number)
        path = folder / STATE
        if not path.is_file():
            job = folder / JOB
            late = job.is_file() and time.time() - job.stat().st_mtime > _SLOWEST_START_S
            return State("failed", "the worker did not start") if late else State()
        state = read_as(path, State)
        if state.stage in ENDED or _is_at_work(folder):
            return state
        again = read_as(path, State)  # it may have ended between the two looks
        if again.stage in ENDED:
            return again
        last = _last_line(folder / SAID)
        return State(
            "failed", f"the process ended while {_DOING[state.stage]}" + (f": {last}" if last else "")
        )

    def current(self) -> tuple[Job, State] | None:
        """Return the run that is at work, if any."""
        for job, state in self.history()[:1]:
            if state.stage not in ENDED:
                return job, state
        return None

    def log(self, number: int) -> list[dict[str, str]]:
        """Return the lines of a run's log."""
        return read_log(self.folder(number) / RUN / "log.csv")

    def train(self, slide: str, view: Area | None = None) -> Job:
        """Begin a run on all marks of the project.

        Args:
            slide: the one in view.
            view: part of it that is predicted first.

        Raises:
            InputError: there is nothing to learn from, or a run is at work.
        """
        with self._mutex:
            if self.current() is not None:
                raise InputError("a training is under way; wait for it, or stop it")
            number = 1 + max((job.number for job, _ in self.history()), default=0)
            folder = self.folder(number)
            marked = self._write_marks(folder / MARKS)
            start = next((job.number for job, state in self.history() if state.stage == "done"), None)
            job = Job(
                number=number,
                slide=slide,
                view=view,
                start="starter" if start is None else str(self.folder(start) / RUN),
                marks=marked,
                steps=self.steps,
            )
            write_json(folder / JOB, job)
            self._start(folder)
            return job

    def resume(self, number: int) -> None:
        """Go on with a run that was stopped or has failed."""
        with self._mutex:
            if self.current() is not None:
                raise InputError("a training is under way; wait for it, or stop it")
            folder = self.folder(number)
            (folder / STOP).unlink(missing_ok=True)
            (folder / STATE).unlink(missing_ok=True)
            (folder / JOB).touch()
            self._start(folder)

    def stop(self, number: int) -> None:
        """Ask the worker of a run to stop."""
        (self.folder(number) / STOP).touch()

    def warm_up(self) -> None:
        """Start a process that loads what training needs and waits for a job."""
        with self._mutex:
            if self._spare is None or self._spare.poll() is not None:
                self._spare = subprocess.Popen(
                    [sys.executable, "-m", "sparseshot.studio.worker", str(self.project.folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # it outlives this process and does not see its Ctrl-C
                )

    def close(self) -> None:
        """End the process that waits for a job; one that has a job goes on."""
        with self._mutex:
            if self._spare is not None and self._spare.stdin is not None:
                self._spare.stdin.close()
                self._spare.terminate()
                self._spare.wait(30)
                self._spare = None

    def result(self, number: int, slide: str) -> Result:
        """Return what a run found on a slide."""
        self.project.entry(slide)
        return Result(self.folder(number) / FOUND / slide, self.project.slide(slide).mpp)

    def _write_marks(self, folder: Path) -> int:
        total = 0
        for slide in self.project.slides:
            cells = self.book.cells(slide)
            if not len(cells) and not len(cells.regions):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            cells.write(folder / f"{slide}.parquet")
            total += len(cells)
        if not total:
            raise InputError("there are no marks yet; click some cells first")
        return total

    def _start(self, folder: Path) -> None:
        self.warm_up()
        assert self._spare is not None
        assert self._spare.stdin is not None
        try:
            self._spare.stdin.write(f"{folder}\n".encode())
            self._spare.stdin.close()
        except OSError as error:
            raise SparseshotError(f"the worker did not start ({error})") from error
        _REAPED.append(self._spare)
        _REAPED[:] = [each for each in _REAPED if each.poll() is None]
        self._spare = None


_DOING = {"waiting": "starting", "training": "training", "view": "predicting", "slides": "predicting"}
_REAPED: list["subprocess.Popen[bytes]"] = []
"""Processes at work, kept so that they are not left as zombies."""


def _is_at_work(folder: Path) -> bool:
    try:
        with locked(folder):
            return False
    except OutputError:
        return True


def _last_line(path: Path) -> str:
    if not path.is_file():
        return ""
    lines: Sequence[str] = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else ""
