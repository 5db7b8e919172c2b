"""What people see while a command works: bars on a terminal, a plain line every 30 seconds elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from sparseshot.work.folder import Event, Report

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 30.0


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
def shown_events(*, keep: bool = False, in_bytes: bool = False) -> Iterator[Report]:
    """Yield a function that shows events on standard error.

    A stage of known length is a bar on a terminal, and a line every 30 seconds elsewhere. An event that only
    has a message is a line.

    Args:
        keep: leave the bars on the terminal at the end.
        in_bytes: counts are bytes.
    """
    from rich.console import Console  # noqa: PLC0415  not needed for --help

    console = Console(stderr=True, highlight=False)
    with _bars(console, keep, in_bytes) if console.is_terminal else nullcontext(_lines(console)) as show:

        def report(event: Event) -> None:
            if event.total is None and not event.done:
                print(printable(event.message), file=sys.stderr)
            else:
                show(event)

        yield report


@contextmanager
def _bars(console: "Console", keep: bool, in_bytes: bool) -> Iterator[Report]:
    """Yield a function that shows a bar for each stage."""
    from rich import progress as columns  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    def rigid() -> Column:
        return Column(no_wrap=True)

    def flexible(ratio: int) -> Column:  # what is cut where the terminal is narrow
        return Column(ratio=ratio, no_wrap=True, overflow="ellipsis")

    count = columns.DownloadColumn if in_bytes else columns.MofNCompleteColumn
    shown = (
        columns.TextColumn("{task.description}", markup=False, table_column=flexible(2)),
        columns.BarColumn(12, table_column=rigid()),
        count(table_column=rigid()),
        columns.TimeRemainingColumn(compact=True, table_column=rigid()),
        columns.TextColumn("{task.fields[note]}", markup=False, table_column=flexible(3)),
    )
    with columns.Progress(*shown, console=console, transient=not keep, expand=True) as progress:
        bars: dict[str, columns.TaskID] = {}

        def show(event: Event) -> None:
            done, total, note = event.done, event.total, printable(event.message)
            if event.stage not in bars:
                bars[event.stage] = progress.add_task(printable(event.stage), completed=done, note=note)
            progress.update(bars[event.stage], completed=done, total=total, note=note)

        yield show


def _lines(console: "Console") -> Report:
    """Return a function that prints a line every so many seconds, of whichever stage is next."""
    begun: dict[str, tuple[float, int]] = {}
    last = time.monotonic()

    def show(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        started, before = begun.setdefault(event.stage, (now, event.done))
        if now < last + LINE_SECONDS:
            return
        last = now
        parts = [f"{event.done:,}" if event.total is None else f"{event.done:,} of {event.total:,}"]
        if event.total is not None and event.done > before:
            left = (event.total - event.done) * (now - started) / (event.done - before)
            parts.append(f"about {duration(left)} left")
        line = f"{event.stage}: {', '.join([*parts, *filter(None, [event.message])])}"
        console.print(printable(line), markup=False, soft_wrap=True)

    return show
