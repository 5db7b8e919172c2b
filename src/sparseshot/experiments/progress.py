"""Progress of an experiment: a line for each finished run, and bars on a terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from sparseshot.experiments.experiment import Run
from sparseshot.experiments.folders import LOG
from sparseshot.experiments.results import Result
from sparseshot.terminal import duration
from sparseshot.training.logs import read_log

_BAR_SECONDS = 1.0  # between two looks at a log, which takes a while to read in long runs


class ExperimentProgress:
    """Receives progress events; this class ignores them."""

    def begun(self, done: int, missing: int) -> None:
        """Receive how many runs were done before and how many are to be run."""

    def started(self, run: Run) -> None:
        """Receive a run that was started."""

    def working(self, run: Run, folder: Path) -> None:
        """Receive a run at work; called several times a second."""

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """Receive a result, its time, and the estimated time until all runs have ended."""


class ProgressLines(ExperimentProgress):
    """Prints a line for each run that ended; with ``bars``, also shows one for each run at work."""

    def __init__(self, console: Console, bars: Bars | None = None) -> None:
        self.console, self._bars = console, bars
        self.total = self.done = 0
        self._tasks: dict[str, TaskID] = {}
        self._next: dict[str, float] = {}
        self._all = None if bars is None else bars.add_task("all runs", total=1)

    def begun(self, done: int, missing: int) -> None:
        """Print how much there is to do."""
        self.total = missing
        self.console.print(f"{done} of {done + missing} runs are done, {missing} to do")
        self._update_all()

    def started(self, run: Run) -> None:
        """Add a bar."""
        if self._bars is not None:
            steps = run.config().steps * run.method.rounds
            self._tasks[run.name] = self._bars.add_task(run.name, total=steps)

    def working(self, run: Run, folder: Path) -> None:
        """Move the bar of a run."""
        now = time.monotonic()
        if self._bars is not None and now >= self._next.get(run.name, 0.0):
            self._next[run.name] = now + _BAR_SECONDS
            self._bars.update(self._tasks[run.name], completed=steps_done(folder))

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """Print the result, and remove the bar."""
        if self._bars is not None:
            self._bars.remove_task(self._tasks.pop(result.run.name))
        self.done += 1
        left = f"; about {duration(seconds_left)} left" if self.done < self.total else ""
        line = f"[{self.done}/{self.total}] {result.run.name}: {outcome(result)}, {duration(seconds)}{left}"
        style = "red" if result.state == "failed" else None
        self.console.print(line, style=style, markup=False, soft_wrap=True)
        self._update_all()

    def _update_all(self) -> None:
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, completed=self.done, total=self.total)


@contextmanager
def terminal_progress() -> Iterator[ProgressLines]:
    """Show progress on standard error, with bars if it is a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield ProgressLines(console)
        return
    counts = TextColumn("{task.completed:.0f}/{task.total:.0f}")
    with Bars("{task.description}", BarColumn(), counts, console=console, transient=True) as bars:
        yield ProgressLines(console, bars)


def steps_done(folder: Path) -> int:
    """Return the steps a run has done, over its rounds."""
    logs = [folder / LOG, *folder.glob(f"rounds/*/{LOG}")]
    return sum(int(lines[-1]["step"]) for lines in map(read_log, logs) if lines)


def outcome(result: Result) -> str:
    """Return the scores of a run, or its error."""
    if result.failure is not None:
        return f"failed, {result.failure}"
    measure = "Dice" if result.run.task == "segment" else "F1"
    half, calibrated = result.score("half"), result.score("calibrated")
    if half is None:
        return "not run"
    return f"{measure} {half:.3f} at 0.5" + ("" if calibrated is None else f", {calibrated:.3f} calibrated")
