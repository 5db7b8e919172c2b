"""The process that trains and predicts for the studio: ``python -m sparseshot.studio.worker PROJECT``.

It loads what it needs and rehearses, then performs each run that has not begun, at low priority. When the
process that started it ends, and with it the standard input, it finishes the run it has and ends, too.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from sparseshot.errors import OutputError, SlideError, SparseshotError, counted
from sparseshot.files import is_locked, read_json
from sparseshot.prediction import Model
from sparseshot.studio.found_cells import Area
from sparseshot.studio.package_work import (
    Superseded,
    find_cells,
    find_cells_in_view,
    finding_model,
    learn,
    rehearse,
    suggest,
)
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import (
    FEW_MARKS_THRESHOLD,
    FOUND,
    LOOK,
    STOP,
    RunProgress,
    RunRecipe,
    Stage,
    numbers_of_runs,
    read_progress,
    read_run_recipe,
    run_folder,
    save_progress,
)
from sparseshot.studio.slide_results import SlideResult, is_finished
from sparseshot.studio.telling import told
from sparseshot.work import Event, WorkFolder
from sparseshot.work.folder import OUTPUT, STATE

_NICE = 10
_LOOK_S = 0.1
_PATIENCE_S = 3.0
_SAVE_S = 0.25
_MOST_POINTS = 100
_REHEARSED = threading.Event()
_GONE = "the file has disappeared; put it back and press Resume"


class Stopped(Exception):  # noqa: N818  nothing went wrong
    """A person has stopped the run."""


def perform(project: Project, recipe: RunRecipe, folder: WorkFolder) -> None:
    """Train, and find cells in view, on its slide, and on the others; then suggest where to look next.

    The state of the folder tells how far it is. What was done before is not done again.
    """
    teller = _Teller(folder, recipe)
    marks = counted(recipe.marks, "mark") if recipe.learns else "found with the starter"
    try:
        with told() as notes:
            teller.notes = notes
            checkpoint = learn(project, recipe, folder.path, teller.report)
            threshold = FEW_MARKS_THRESHOLD if checkpoint.threshold is None else checkpoint.threshold
            teller.state = replace(teller.state, threshold=threshold)
            teller.report(Event("view", message="finding cells in view"))
            model = finding_model(checkpoint, threshold)
            left_out = _predict(project, recipe, folder.path, model, teller)
        teller.say("done", "; ".join([marks, *left_out.values()]), share=1.0)
    except Stopped:
        teller.say("stopped", "stopped")
    except Superseded:
        teller.say("done", f"{marks}; another run began before all was predicted")
    except (SparseshotError, OSError) as error:
        teller.say("failed", str(error))
    except Exception as error:
        traceback.print_exc()
        teller.say("failed", f"{type(error).__name__}: {error}")
    else:
        _rehearse(project)
        slides = {each: project.slide(each) for each in recipe.slides_of(project) if each not in left_out}
        try:  # unless somebody trains again; the run is done without them
            is_wanted = partial(_is_latest, folder.path, recipe)
            suggest(folder.path, model, slides, is_wanted=is_wanted)
        except Exception:
            traceback.print_exc()


class _Teller:
    """Writes events to the state of a run, and ends the run when somebody stopped or superseded it."""

    def __init__(self, folder: WorkFolder, recipe: RunRecipe) -> None:
        self.folder, self.recipe, self.notes = folder, recipe, list[str]()
        self.state = RunProgress(begun=time.time())
        self._since = 0.0
        self.look: Callable[[], object] = lambda: None

    def say(self, stage: Stage, message: str = "", *, share: float = 0.0) -> None:
        """Write what is being done."""
        notes = tuple(dict.fromkeys(" ".join(each.split()) for each in self.notes))
        self.state = replace(
            self.state, stage=stage, message=message, share=share, changed=time.time(), notes=notes
        )
        save_progress(self.folder, self.state)

    def report(self, event: Event) -> None:
        """Receive an event of training or prediction."""
        if (self.folder.path / STOP).exists():
            raise Stopped
        is_training = event.stage not in {"view", "slides"}
        if not is_training:
            if not _is_latest(self.folder.path, self.recipe):
                raise Superseded
            self.look()
        if "loss" in event.values:
            loss = (*self.state.loss, round(float(event.values["loss"]), 4))
            self.state = replace(self.state, loss=loss if len(loss) < 2 * _MOST_POINTS else loss[::2])
        now, stage = time.monotonic(), "training" if is_training else event.stage
        if stage == self.state.stage and now - self._since < _SAVE_S and event.done != event.total:
            return
        self._since = now
        self.say(stage, _words(event, self.state.begun), share=event.share)  # type: ignore[arg-type]


def _words(event: Event, begun: float) -> str:
    """Return an event in words, of training with the time left."""
    if event.stage != "training" or event.total is None:
        return event.message if event.stage in {"view", "slides"} else "reading the marks"
    text = f"step {event.done} of {event.total}"
    if event.share > 0.05 and event.done < event.total:
        left = (time.time() - begun) * (1 - event.share) / event.share
        text += f", about {left:.0f} s left" if left < 100 else f", about {left / 60:.0f} min left"
    return text


def _predict(
    project: Project, recipe: RunRecipe, folder: Path, model: Model, teller: _Teller
) -> dict[str, str]:
    """Predict all slides, the one in view first; return why some were left out, by id.

    Raises:
        SlideError: none could be predicted.
    """
    (folder / FOUND).mkdir(exist_ok=True)
    left_out: dict[str, str] = {}
    wanted = recipe.slides_of(project)
    for slide in wanted:
        path = project.path(slide)
        try:
            if not path.exists():
                raise SlideError(path, _GONE)
            opened = project.slide(slide)
            result = SlideResult(folder / FOUND / slide, opened.mpp)
            find_in_view = partial(find_cells_in_view, opened, model, result)
            look = _looking(project.folder / LOOK, slide, find_in_view)
            is_in_view = slide == recipe.slide and not is_finished(result.folder)
            if is_in_view and (recipe.view is not None or not look()):
                find_in_view(recipe.view)
            teller.report(Event("slides", message=opened.name))
            teller.look = look
            find_cells(
                opened,
                model,
                result.folder,
                everywhere=recipe.everywhere,
                anew=not recipe.learns,
                report=teller.report,
            )
        except SlideError as error:
            left_out[slide] = f"{path.name}: {error.problem if path.exists() else _GONE}"
        finally:
            teller.look = lambda: None
    if len(left_out) == len(wanted):
        raise SparseshotError("; ".join(left_out.values()))
    return left_out


def _looking(file: Path, slide: str, find: Callable[[Area | None], None]) -> Callable[[], bool]:
    """Return what finds the cells in view when that is another part, and tells whether it is known."""
    seen = 0

    def look() -> bool:
        nonlocal seen
        with suppress(OSError, SparseshotError, LookupError, TypeError, ValueError):
            stamp = file.stat().st_mtime_ns
            if stamp == seen:
                return True
            asked = read_json(file)
            x0, y0, x1, y1 = map(float, asked["view"])
            if asked["slide"] == slide:
                seen = stamp
                find((x0, y0, x1, y1))
                return True
        return False

    return look


def _is_latest(folder: Path, recipe: RunRecipe) -> bool:
    """Return whether no other run waits, and this one need not begin again with another recipe."""
    return next_run(folder.parents[1]) in {None, folder} and read_run_recipe(folder) == recipe


def _rehearse(project: Project) -> None:
    """Load and compile what a training needs, once, unless a run waits."""
    if not _REHEARSED.is_set():
        _REHEARSED.set()
        rehearse(project, is_wanted=lambda: next_run(project.folder) is None)


def next_run(project: Path) -> Path | None:
    """Return the folder of the latest run that nobody has begun."""
    for number in numbers_of_runs(project):
        folder = run_folder(project, number)
        if not (folder / STATE).exists() and not is_locked(folder):
            return folder
    return None


def main() -> None:
    """Rehearse, then perform one run after the other."""
    if hasattr(os, "nice"):  # on Windows, who starts this process says so
        os.nice(_NICE)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(os.cpu_count() or 2)
    project, is_alone = Path(sys.argv[1]), threading.Event()
    threading.Thread(target=_wait_for_end_of_input, args=[is_alone], daemon=True).start()
    if next_run(project) is None:
        _rehearse(Project.open([], folder=project))
    while not is_alone.is_set():
        if (folder := next_run(project)) is None:
            is_alone.wait(_LOOK_S)
            continue
        with (folder / OUTPUT).open("a", buffering=1) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        recipe = read_run_recipe(folder)
        try:
            with WorkFolder.claimed(folder, recipe, may_replace=lambda _: True) as claimed:
                if not (folder / STATE).exists():
                    is_over = threading.Event()
                    threading.Thread(target=_end_if_stopped, args=[folder, is_over], daemon=True).start()
                    perform(Project.open([], folder=project), recipe, claimed)
                    is_over.set()
                    if read_run_recipe(folder) != recipe:
                        (folder / STATE).unlink(missing_ok=True)
        except OutputError:
            if not is_locked(folder):  # otherwise another process has taken it
                raise


def _end_if_stopped(folder: Path, is_over: threading.Event) -> None:
    """End the process if a run that was stopped reports no event for a while.

    Every file is written whole, and a run resumes from its last checkpoint.
    """
    while not is_over.wait(_LOOK_S):
        state = read_progress(folder) or RunProgress()
        if (folder / STOP).exists() and not state.has_ended and not is_over.wait(_PATIENCE_S):
            save_progress(WorkFolder(folder), replace(state, stage="stopped", message="stopped"))
            os._exit(0)


def _wait_for_end_of_input(is_alone: threading.Event) -> None:
    sys.stdin.read()
    is_alone.set()


if __name__ == "__main__":
    main()
