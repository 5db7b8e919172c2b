"""Runs of the studio: work folders, and the process that works in them."""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from sparseshot.active import Suggestion
from sparseshot.errors import FormatError, InputError, SparseshotError
from sparseshot.files import read_as, read_json, write_json
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import FIRST_CLASS, MarkBook
from sparseshot.studio.project import Project
from sparseshot.studio.slide_results import SlideResult, is_finished
from sparseshot.work.folder import MODEL, OUTPUT, RECIPE, STATE, WorkFolder, as_json

FEW_MARKS_THRESHOLD = 0.5
"""Threshold of a run whose marks are too few to calibrate one."""

RUNS, RUN, FOUND, MARKS, STOP, LOOK = "runs", "model", "found", "marks", "stop", "look.json"
SUGGESTIONS = "suggestions.json"
UNTRAINED = 0
"""Number of the run that finds cells with the starter, before anybody has trained."""

_OLD_RECIPE = "job.json"
"""Of 0.2.0."""

Stage = Literal["waiting", "training", "view", "slides", "done", "stopped", "failed"]
ENDED = {"done", "stopped", "failed"}
LEARNING = {"waiting", "training"}
_DOING = {"waiting": "starting", "training": "training", "view": "predicting", "slides": "predicting"}


@dataclass(frozen=True)
class RunRecipe:
    """What a run of the studio does: train on the marks in its folder, then find cells.

    Attributes:
        number: of the run; :data:`UNTRAINED` finds with the model to start from.
        slide: id of the slide in view.
        view: the part in view, in level-0 pixels; None if it is unknown.
        start: model to start from: a path, or a name that training knows.
        marks: number of marks it learns from.
        steps: optimiser steps; 0: chosen by training.
        everywhere: take glass for tissue.
        others: ids of further slides on which it finds cells; None for all.
    """

    number: int
    slide: str
    view: Area | None = None
    start: str = "starter"
    marks: int = 0
    steps: int = 0
    everywhere: bool = False
    others: tuple[str, ...] | None = None

    @property
    def learns(self) -> bool:
        """Whether it trains before it finds cells."""
        return self.number != UNTRAINED

    def slides_of(self, project: Project) -> list[str]:
        """Return the slides on which it finds cells, the one in view first."""
        wanted = project.slides if self.others is None else self.others
        return list(dict.fromkeys(each for each in (self.slide, *wanted) if each in project.slides))


@dataclass(frozen=True)
class RunProgress:
    """How far a run is; the folder's state holds it.

    Attributes:
        stage: what it is doing.
        message: a sentence about it, or the error.
        share: completed part of the stage, 0 to 1.
        threshold: calibrated in training.
        begun: time at which the run began.
        changed: time of this state.
        loss: of the steps so far.
        notes: warnings.
    """

    stage: Stage = "waiting"
    message: str = ""
    share: float = 0.0
    threshold: float = FEW_MARKS_THRESHOLD
    begun: float = 0.0
    changed: float = 0.0
    loss: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens any more; suggestions may still be looked for."""
        return self.stage in ENDED


_PROGRESS = TypeAdapter(RunProgress)


class StudioRun(NamedTuple):
    """A run and how far it is."""

    recipe: RunRecipe
    progress: RunProgress


@dataclass(frozen=True)
class NextRegions:
    """Regions to mark after a run.

    Attributes:
        regions: the most useful first; ``slide`` is the id of the slide.
        problem: why there are none.
    """

    regions: tuple[Suggestion, ...] = ()
    problem: str = ""


def read_next(folder: Path) -> NextRegions | None:
    """Return the suggestions of a run; None while they are not there."""
    path = folder / SUGGESTIONS
    return read_as(path, NextRegions) if path.is_file() else None


def numbers_of_runs(project: Path) -> list[int]:
    """Return the numbers of the runs of a project, the latest first."""
    folders = (project / RUNS).glob("[0-9]*")
    numbers = [int(path.name) for path in folders if path.name.isdecimal() and len(path.name) < 10]
    return sorted((each for each in numbers if _recipe_file(run_folder(project, each))), reverse=True)


def run_folder(project: Path, number: int) -> Path:
    """Return the folder of a run."""
    return project / RUNS / f"{number:04d}"


def read_run_recipe(folder: Path) -> RunRecipe:
    """Return what a run does."""
    return read_as(_recipe_file(folder) or folder / RECIPE, RunRecipe)


def _recipe_file(folder: Path) -> Path | None:
    return next((folder / name for name in (RECIPE, _OLD_RECIPE) if (folder / name).is_file()), None)


def read_progress(folder: Path) -> RunProgress | None:
    """Return how far a run is; None before it has begun."""
    path = folder / STATE
    if not path.is_file():
        return None
    content = read_json(path)
    own = content.get("own", content) if isinstance(content, dict) else content  # 0.2.0 wrote it alone
    try:
        return _PROGRESS.validate_python(own)
    except ValidationError as error:
        raise FormatError(path, "is no state of a run; press Resume to write it anew") from error


def save_progress(folder: WorkFolder, progress: RunProgress) -> None:
    """Write how far a run is."""
    is_done, error = progress.stage == "done", progress.message if progress.stage == "failed" else None
    folder.save(own=asdict(progress), finished=is_done, error=error)


@dataclass
class Runs:
    """The runs of a project; one is active at a time.

    The process that works waits for a run without a state. Only the lock of a folder decides who works in it.

    Attributes:
        project: the project.
        book: its marks.
        steps: optimiser steps of every run; 0: chosen by training.
        everywhere: take glass for tissue.
    """

    project: Project
    book: MarkBook
    steps: int = 0
    everywhere: bool = False
    _worker: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _mutex: RLock = field(default_factory=RLock, init=False)

    def folder(self, number: int) -> Path:
        """Return the folder of a run."""
        return run_folder(self.project.folder, number)

    def history(self) -> list[StudioRun]:
        """Return all runs that can be read, the latest first."""
        runs = []
        for number in numbers_of_runs(self.project.folder):
            with suppress(SparseshotError):
                runs.append(StudioRun(read_run_recipe(self.folder(number)), self.progress(number)))
        return runs

    def progress(self, number: int) -> RunProgress:
        """Return how far a run is; one whose process died has failed."""
        folder = WorkFolder(self.folder(number))
        try:
            state = read_progress(folder.path)
            if state is None:
                return self._waiting(folder)
            if state.has_ended or folder.is_active:
                return state
            state = read_progress(folder.path) or state  # it may have ended in the meantime
        except FormatError as error:
            return RunProgress("failed", str(error))
        if state.has_ended:
            return state
        last = _last_line(folder.path / OUTPUT)
        message = f"the process ended while {_DOING[state.stage]}" + (f": {last}" if last else "")
        return replace(state, stage="failed", message=message)

    def _waiting(self, folder: WorkFolder) -> RunProgress:
        """Return the progress of a run that has not begun; it has failed if the process died."""
        if self._worker is None or self._worker.poll() is None or folder.is_active:
            return RunProgress()
        last = _last_line(self.project.folder / OUTPUT)
        lost = RunProgress("failed", "the process for training did not start" + (f": {last}" if last else ""))
        with suppress(OSError, SparseshotError):
            save_progress(folder, lost)
        return lost

    def current(self) -> StudioRun | None:
        """Return the active run, if any."""
        return next((run for run in self.history() if not run.progress.has_ended), None)

    def is_active(self, number: int) -> bool:
        """Return whether a process works on a run; one that is done may still suggest regions."""
        return WorkFolder(self.folder(number)).is_active

    def train(self, slide: str, view: Area | None = None, *, start: int | None = None) -> RunRecipe:
        """Begin a run on all marks of the project.

        Args:
            slide: the one in view.
            view: part of it that is predicted first.
            start: number of the run to continue; by default the latest with a finished model, or
                :data:`UNTRAINED`.

        Raises:
            InputError: there is nothing to learn from, or a run still learns. One that only predicts the rest
                of the slides is interrupted.
        """
        with self._mutex:
            if self.is_learning():
                raise InputError("a training is under way; wait for it, or stop it")
            folder = self.folder(1 + max(numbers_of_runs(self.project.folder), default=UNTRAINED))
            marked, learned = self._write_marks(folder / MARKS), self._trained()
            if start not in {UNTRAINED, *learned}:
                start = learned[0] if learned else UNTRAINED
            recipe = RunRecipe(
                number=int(folder.name),
                slide=slide,
                view=view,
                start=str(self.folder(start) / RUN) if start in learned else "starter",
                marks=marked,
                steps=self.steps,
                everywhere=self.everywhere,
            )
            self._begin(recipe)
            return recipe

    def _trained(self) -> list[int]:
        """Return the runs with a finished model, the latest first."""
        known = numbers_of_runs(self.project.folder)
        return [each for each in known if (self.folder(each) / RUN / MODEL).is_file()]

    def is_learning(self) -> bool:
        """Return whether a run trains, or is about to."""
        current = self.current()
        return current is not None and current.recipe.learns and current.progress.stage in LEARNING

    def find(self, slide: str, view: Area | None = None, *, everything: bool = False) -> None:
        """Find cells on a slide that has been opened, first in what is in view.

        The latest trained model finds them, or the starter. Nothing happens where that is done or under way.

        Args:
            slide: the one in view.
            view: part of it that is predicted first.
            everything: find cells on all other slides, too.
        """
        with self._mutex:
            if self.is_learning():
                return
            number = next(iter(self._trained()), UNTRAINED)
            if number in numbers_of_runs(self.project.folder):
                recipe = read_run_recipe(self.folder(number))
                wanted = self.project.slides if everything else [slide]
                is_included = set(wanted) <= set(recipe.slides_of(self.project))
                has_ended = self.progress(number).stage in {"done", "failed"} and not self.is_active(number)
                if is_included and not (has_ended and self._lacks(number, wanted)):
                    return
            elif self.project.entry(slide).found and not everything:
                return  # it was opened with cells
            else:
                recipe = RunRecipe(number, slide, everywhere=self.everywhere, others=())
            others = None if everything else (*recipe.slides_of(self.project),)
            self._begin(replace(recipe, slide=slide, view=view, others=others))

    def look(self, slide: str, view: Area) -> None:
        """Tell the process what is in view, so that it finds the cells there next."""
        write_json(self.project.folder / LOOK, {"slide": slide, "view": view})

    def forget(self, slide: str) -> None:
        """Remove what was found on a slide, as when the size of its pixels was wrong."""
        with self._mutex:
            if (current := self.current()) is not None and slide in current.recipe.slides_of(self.project):
                raise InputError("cells are being found on this slide; stop that first")
            for number in numbers_of_runs(self.project.folder):
                folder = self.folder(number) / FOUND / slide
                for each in (folder, SlideResult(folder, 1.0).views):
                    shutil.rmtree(each, ignore_errors=True)

    def _lacks(self, number: int, slides: Iterable[str]) -> bool:
        """Return whether a run has not found all cells of some slides, as when it was interrupted."""
        folder = self.folder(number) / FOUND
        return any(not is_finished(folder / each) for each in slides if self.project.path(each).exists())

    def resume(self, number: int) -> None:
        """Resume a run that was stopped or has failed."""
        with self._mutex:
            if self.current() is not None:
                raise InputError("a training is under way; wait for it, or stop it")
            if number not in numbers_of_runs(self.project.folder):
                raise InputError("there is no such run")
            self._begin(read_run_recipe(self.folder(number)))

    def _begin(self, recipe: RunRecipe) -> None:
        """Let the process perform a run, perhaps once more; what is done is not done again."""
        folder = self.folder(recipe.number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STOP).unlink(missing_ok=True)
        write_json(folder / RECIPE, as_json(recipe))
        if not self.is_active(recipe.number):  # who is at work there sees that its recipe has changed
            (folder / STATE).unlink(missing_ok=True)
        self.warm_up()

    def stop(self, number: int) -> None:
        """Ask the process to stop a run; it does so at its next event."""
        if number in numbers_of_runs(self.project.folder):
            (self.folder(number) / STOP).touch()

    def warm_up(self) -> None:
        """Start the process that works, if there is none: it loads and compiles, and waits for a run."""
        with self._mutex:
            if self._worker is not None and self._worker.poll() is None:
                return
            self._close_input()
            with (self.project.folder / OUTPUT).open("wb") as output:
                self._worker = subprocess.Popen(
                    [sys.executable, "-m", "sparseshot.studio.worker", str(self.project.folder)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # it outlives this process and does not see its Ctrl-C
                    creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),  # on Windows
                )

    def _close_input(self) -> None:
        """Close the input of the process, which ends it after its run."""
        if self._worker is not None and self._worker.stdin is not None:
            with suppress(OSError):
                self._worker.stdin.close()

    def close(self) -> None:
        """End the process, unless it works on a run that somebody began, which it finishes."""
        with self._mutex:
            if self._worker is None:
                return
            self._close_input()
            trained = [each for each in numbers_of_runs(self.project.folder) if each != UNTRAINED]
            current = self.current()
            if (current is not None and current.recipe.learns) or any(map(self.is_active, trained[:1])):
                _AT_WORK.append(self._worker)
            else:
                self._worker.terminate()
                self._worker.wait(30)
            self._worker = None

    def result(self, number: int, slide: str) -> SlideResult:
        """Return what a run found on a slide."""
        return SlideResult(self.folder(number) / FOUND / slide, self.project.slide(slide).mpp)

    def _write_marks(self, folder: Path) -> int:
        """Write the marks for finding, in which all kinds of cells are one class; return their number."""
        total = 0
        for slide in self.project.slides:
            cells = self.book.cells(slide)
            cells = cells.renamed(dict.fromkeys(self.book.classes, FIRST_CLASS))
            if not len(cells) and not len(cells.regions):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            cells.write(folder / f"{slide}.parquet")
            total += len(cells)
        if not total:
            raise InputError("there are no marks yet; click some cells first")
        return total


_AT_WORK: list["subprocess.Popen[bytes]"] = []
"""Processes that outlive their studio; Popen warns of one that is dropped."""


def _last_line(path: Path) -> str:
    if not path.is_file():
        return ""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else ""
