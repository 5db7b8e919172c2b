"""What people see while a command works: bars on a terminal, a plain line every 30 seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from sparseshot.work.folder import Event

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 30.0


class Report(Protocol):
    """Shows how far one piece of work is."""

    def __call__(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show ``done`` of ``total`` and a note; a total of None leaves the last one."""


class Begin(Protocol):
    """Begins one piece of work."""

    def __call__(self, title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:
        """Return the function that shows its progress; ``done`` is what an earlier call finished."""


def no_progress(title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:  # noqa: ARG001
    """Begin a piece of work whose progress is not shown."""
    return lambda done, total=None, note="": None  # noqa: ARG005


def printable(text: object) -> str:
    r"""Return text with control characters escaped, which a terminal would obey.

    Names of files and classes come from strangers.

    >>> printable("tumour\x1b[2J [red]\udcff")
    'tumour\\x1b[2J [red]\\udcff'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text)
    )


def duration(seconds: float) -> str:
    """Return a time in the two largest units.

    >>> duration(7.4), duration(124), duration(3 * 3600 + 59)
    ('7 s', '2 min 04 s', '3 h 00 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


@contextmanager
def progress_bars(*, keep: bool = False, in_bytes: bool = False, show: bool = True) -> Iterator[Begin]:
    """Show progress on standard error.

    Args:
        keep: leave the bars on the terminal at the end.
        in_bytes: counts are bytes.
        show: False shows nothing at all, for all processes but the first.
    """
    from rich.console import Console  # noqa: PLC0415  not needed for --help

    console = Console(stderr=True, highlight=False)
    if console.is_terminal and show:
        with _bars(console, keep=keep, in_bytes=in_bytes) as begin:
            yield begin
    else:
        yield _Lines(console, seconds=LINE_SECONDS if show else float("inf")).begin


@contextmanager
def shown_events(*, keep: bool = False) -> Iterator[Callable[[Event], None]]:
    """Yield a function that shows events on standard error: stages with a total as bars, others as lines.

    ``keep`` leaves the bars on the terminal at the end.
    """
    with progress_bars(keep=keep) as begin:
        bars: dict[str, Report] = {}

        def report(event: Event) -> None:
            if event.total is None:
                print(printable(event.message), file=sys.stderr)
                return
            if event.stage not in bars:
                bars[event.stage] = begin(event.stage, event.total, done=event.done)
            bars[event.stage](event.done, event.total, note=event.message)

        yield report


@contextmanager
def _bars(console: "Console", *, keep: bool, in_bytes: bool) -> Iterator[Begin]:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column  # noqa: PLC0415

    def rigid() -> Column:
        return Column(no_wrap=True)

    def flexible(ratio: int) -> Column:  # what is cut where the terminal is narrow
        return Column(ratio=ratio, no_wrap=True, overflow="ellipsis")

    columns = (
        TextColumn("{task.description}", markup=False, table_column=flexible(2)),
        BarColumn(12, table_column=rigid()),
        (DownloadColumn if in_bytes else MofNCompleteColumn)(table_column=rigid()),
        TimeRemainingColumn(compact=True, table_column=rigid()),
        TextColumn("{task.fields[note]}", markup=False, table_column=flexible(3)),
    )
    with Progress(*columns, console=console, transient=not keep, expand=True) as progress:

        def begin(title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:
            task = progress.add_task(printable(title), total=total, completed=done, note=note)

            def report(done: int, total: int | None = None, note: str = "") -> None:
                progress.update(task, completed=done, total=total, note=printable(note))

            return report

        yield begin


class _Lines:
    """One line every so many seconds, for all that is at work."""

    def __init__(self, console: "Console", *, seconds: float) -> None:
        self._console, self._seconds = console, seconds
        self._next = time.monotonic() + seconds

    def begin(self, title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:  # noqa: ARG002
        started, before, last_total = time.monotonic(), done, total

        def report(done: int, total: int | None = None, note: str = "") -> None:
            nonlocal last_total
            last_total = last_total if total is None else total
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + self._seconds
            parts = [f"{done:,}" if last_total is None else f"{done:,} of {last_total:,}"]
            if last_total is not None and done > before:
                left = (last_total - done) * (now - started) / (done - before)
                parts.append(f"about {duration(left)} left")
            line = f"{title}: {', '.join([*parts, *filter(None, [note])])}"
            self._console.print(printable(line), markup=False, soft_wrap=True)

        return report
