"""What is told while an experiment runs: a line for each run; on a terminal also bars."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from sparseshot.experiments.folders import LOG
from sparseshot.experiments.plan import Run
from sparseshot.experiments.results import Result
from sparseshot.training.logs import read_log


class Progress(Protocol):
    """Receives progress events."""

    def begun(self, done: int, missing: int) -> None:
        """So many runs were done before; so many will be run."""

    def started(self, run: Run) -> None:
        """A run has been started."""

    def working(self, folders: Mapping[str, Path]) -> None:
        """These runs are at work; told several times a second."""

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """A run has ended, well or not; about so long it will take until all have."""


class Silent:
    """Says nothing."""

    def begun(self, done: int, missing: int) -> None:
        """Say nothing."""

    def started(self, run: Run) -> None:
        """Say nothing."""

    def working(self, folders: Mapping[str, Path]) -> None:
        """Say nothing."""

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """Say nothing."""


class Lines(Silent):
    """One line for each run that ended."""

    def __init__(self, console: Console) -> None:
        self.console, self.total, self.done = console, 0, 0

    def begun(self, done: int, missing: int) -> None:
        """Say how much there is to do."""
        self.total = missing
        self.console.print(f"{done} of {done + missing} runs are done, {missing} to do")

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """Say how it went."""
        self.done += 1
        left = f"; about {duration(seconds_left)} left" if self.done < self.total else ""
        line = f"[{self.done}/{self.total}] {result.run.name}: {outcome(result)}, {duration(seconds)}{left}"
        self.console.print(
            line, style="red" if result.state == "failed" else None, markup=False, soft_wrap=True
        )


class LinesAndBars(Lines):
    """A bar for each run at work, under the lines."""

    def __init__(self, console: Console, bars: Bars) -> None:
        super().__init__(console)
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._next_look = 0.0
        self._all = bars.add_task("all runs", total=1)

    def begun(self, done: int, missing: int) -> None:
        """Set the length of the bar of all runs."""
        super().begun(done, missing)
        self._bars.update(self._all, total=missing)

    def started(self, run: Run) -> None:
        """Add its bar."""
        self._tasks[run.name] = self._bars.add_task(run.name, total=run.config().steps * run.method.rounds)

    def working(self, folders: Mapping[str, Path]) -> None:
        """Move the bars, once a second: a log of a long run takes a while to read."""
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + 1
        for name, folder in folders.items():
            self._bars.update(self._tasks[name], completed=steps_done(folder))

    def ended(self, result: Result, seconds: float, seconds_left: float) -> None:
        """Say how it went, and take its bar away."""
        self._bars.remove_task(self._tasks.pop(result.run.name))
        super().ended(result, seconds, seconds_left)
        self._bars.update(self._all, completed=self.done)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Return lines on standard error, with bars if it is a terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield LinesAndBars(console, bars)


def steps_done(folder: Path) -> int:
    """Return the steps a run has done, over its rounds."""
    logs = [folder / LOG, *folder.glob(f"rounds/*/{LOG}")]
    return sum(int(lines[-1]["step"]) for lines in map(read_log, logs) if lines)


def outcome(result: Result) -> str:
    """Say in a few words what became of a run."""
    if result.failure is not None:
        return f"failed, {result.failure}"
    measure = "Dice" if result.run.task == "segment" else "F1"
    half, calibrated = result.score("half"), result.score("calibrated")
    if half is None:
        return "not run"
    return f"{measure} {half:.3f} at 0.5" + ("" if calibrated is None else f", {calibrated:.3f} calibrated")


def duration(seconds: float) -> str:
    """Say a time as people do.

    >>> duration(7.4), duration(124), duration(3 * 3600 + 59)
    ('7 s', '2 min 04 s', '3 h 00 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
