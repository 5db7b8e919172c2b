"""Tables for people, JSON for scripts, and bars that only a terminal sees."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table


def print_json(value: object) -> None:
    """Print JSON; what has no value is null, and dataclasses are objects."""
    import orjson

    typer.echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode())


def print_table(table: "Table") -> None:
    """Print a table; not folded to 80 columns where a pipe or a file takes it."""
    from rich.console import Console

    console = Console()
    Console(width=None if console.is_terminal else 200, highlight=False).print(table)


@contextmanager
def progress_bars(*columns: "str | ProgressColumn", keep: bool = False) -> Iterator["Progress"]:
    """Return bars that are shown on a terminal, and nowhere else; gone at the end unless kept."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=not keep, disable=not console.is_terminal) as bars:
        yield bars
