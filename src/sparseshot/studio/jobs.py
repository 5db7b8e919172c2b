"""Runs of the studio: training and prediction in a separate process."""

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Literal

from sparseshot.errors import InputError, OutputError, SparseshotError
from sparseshot.files import locked, read_as, write_json
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.slide_results import SlideResult
from sparseshot.training.logs import read_log
from sparseshot.work.run_files import LOG, MODEL

FEW_MARKS_THRESHOLD = 0.5
"""Threshold of a run whose marks are too few to calibrate one."""

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
LEARNING = {"waiting", "training"}


@dataclass(frozen=True)
class Job:
    """A job of a worker.

    Attributes:
        number: of the run.
        slide: id of the slide in view.
        view: the part in view, in level-0 pixels; None if it is unknown.
        start: model to start from: a path, or a name that training knows.
        marks: number of marks it learns from.
        steps: optimiser steps; 0: chosen by training.
    """

    number: int
    slide: str
    view: Area | None
    start: str
    marks: int
    steps: int = 0


@dataclass(frozen=True)
class State:
    """Progress of a worker.

    Attributes:
        stage: what it is doing.
        message: a sentence about it, or the error.
        share: completed part of the stage, 0 to 1.
        threshold: calibrated in training.
        begun: time at which the job began.
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
    """The runs of a project; one is active at a time.

    Attributes:
        project: the project.
        book: its marks.
        steps: optimiser steps of every run; 0: chosen by training.
    """

    project: Project
    book: MarkBook
    steps: int = 0
    everywhere: bool = False
    _worker: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
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
        """Return the state of a run; one whose process died has failed."""
        folder = self.folder(number)
        path = folder / STATE
        if not path.is_file():
            job = folder / JOB
            late = job.is_file() and time.time() - job.stat().st_mtime > _SLOWEST_START_S
            last = _last_line(self.project.folder / SAID)
            is_lost = late or (self._worker is not None and self._worker.poll() is not None)
            reason = "the process for training did not start" + (f": {last}" if last else "")
            return State("failed", reason) if is_lost else State()
        state = read_as(path, State)
        if state.stage in ENDED or self.is_at_work(number):
            return state
        again = read_as(path, State)  # it may have ended in the meantime
        if again.stage in ENDED:
            return again
        last = _last_line(folder / SAID)
        message = f"the process ended while {_DOING[state.stage]}" + (f": {last}" if last else "")
        return replace(state, stage="failed", message=message)

    def current(self) -> tuple[Job, State] | None:
        """Return the active run, if any."""
        for job, state in self.history()[:1]:
            if state.stage not in ENDED:
                return job, state
        return None

    def is_at_work(self, number: int) -> bool:
        """Return whether a process works on a run; one that is done may still suggest regions."""
        try:
            with locked(self.folder(number)):
                return False
        except OutputError:
            return True

    def log(self, number: int) -> list[dict[str, str]]:
        """Return the lines of a run's log."""
        return read_log(self.folder(number) / RUN / LOG)

    def train(self, slide: str, view: Area | None = None, *, start: int | None = None) -> Job:
        """Begin a run on all marks of the project.

        Args:
            slide: the one in view.
            view: part of it that is predicted first.
            start: number of the run to continue; by default the latest with a finished model, or the starter.

        Raises:
            InputError: there is nothing to learn from, or a run still learns. One that only predicts the rest
                of the slides is interrupted.
        """
        with self._mutex:
            current = self.current()
            if current is not None and current[1].stage in LEARNING:
                raise InputError("a training is under way; wait for it, or stop it")
            known = [job.number for job, _ in self.history()]
            number = 1 + max(known, default=0)
            folder = self.folder(number)
            marked = self._write_marks(folder / MARKS)
            learned = [each for each in known if (self.folder(each) / RUN / MODEL).is_file()]
            if start not in learned:
                start = learned[0] if learned else None
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
        """Resume a run that was stopped or has failed."""
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
        """Start the process that trains: it loads and compiles what it needs, and waits for a job."""
        with self._mutex:
            if self._worker is not None and self._worker.poll() is None:
                return
            current = self.current()
            if current is None:
                self._spawn()
            elif not (self.folder(current[0].number) / STATE).is_file():
                # A studio that was killed may have written the job without handing it over. If its process
                # has it nevertheless, only one of the two can lock the folder.
                self._start(self.folder(current[0].number))

    def _spawn(self) -> "subprocess.Popen[bytes]":
        """Return the process that trains, started if there is none."""
        if self._worker is None or self._worker.poll() is not None:
            self._close_input()
            with (self.project.folder / SAID).open("wb") as said:
                self._worker = subprocess.Popen(
                    [sys.executable, "-m", "sparseshot.studio.worker", str(self.project.folder)],
                    stdin=subprocess.PIPE,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,  # it outlives this process and does not see its Ctrl-C
                )
        return self._worker

    def _close_input(self) -> None:
        """Close the input of the process, which ends it after its job."""
        if self._worker is not None and self._worker.stdin is not None:
            with suppress(OSError):
                self._worker.stdin.close()

    def close(self) -> None:
        """End the process that trains if it waits for a job; one that has a job finishes it."""
        with self._mutex:
            if self._worker is None:
                return
            self._close_input()
            done = [job.number for job, state in self.history()[:1] if state.stage == "done"]
            if self.current() is not None or any(map(self.is_at_work, done)):
                _AT_WORK.append(self._worker)
            else:
                self._worker.terminate()
                self._worker.wait(30)
            self._worker = None

    def result(self, number: int, slide: str) -> SlideResult:
        """Return what a run found on a slide."""
        return SlideResult(self.folder(number) / FOUND / slide, self.project.slide(slide).mpp)

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
        worker = self._spawn()
        assert worker.stdin is not None
        try:
            worker.stdin.write(f"{folder}\n".encode())
            worker.stdin.flush()
        except OSError as error:
            raise SparseshotError(f"the process for training did not start ({error})") from error


_DOING = {"waiting": "starting", "training": "training", "view": "predicting", "slides": "predicting"}
_AT_WORK: list["subprocess.Popen[bytes]"] = []
"""Processes that outlive their studio; Popen warns of one that is dropped."""


def _last_line(path: Path) -> str:
    if not path.is_file():
        return ""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else ""
