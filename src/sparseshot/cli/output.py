"""What commands print: lines and tables for people, or with ``--json`` JSON for scripts.

A command says what it has to say in both forms, and only the wanted one is printed.

Text from files and file names reaches the terminal only through this module and :mod:`sparseshot.terminal`,
which escape control characters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import typer

from sparseshot.terminal import printable


@dataclass
class _State:
    json: bool = False
    debug: bool = False
    resumable: bool = False


running = _State()
"""The running command: what it prints, whether errors have a traceback, and whether Ctrl-C may resume."""


def echo(line: object = "", *, err: bool = False) -> None:
    """Print one line for people; to standard error also with ``--json``."""
    if err or not running.json:
        typer.echo(printable(line), err=err)


def complain(kind: Literal["error", "warning"], line: object) -> None:
    """Print an error or a warning to standard error, in colour on a terminal."""
    color = typer.colors.RED if kind == "error" else typer.colors.YELLOW
    typer.secho(f"{kind}: {printable(line)}", fg=color, err=True)


def print_json(value: object) -> None:
    """Print JSON in UTF-8 if it is wanted; NaN is null, dataclasses are objects, and paths are strings."""
    if not running.json:
        return
    import orjson

    def plain(other: object) -> str:
        return str(other).encode(errors="backslashreplace").decode()  # a path need not be UTF-8

    typer.echo(orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; a long line is left to the terminal to wrap, and nothing is cut.

    Whole numbers have thousands separators, truth values are yes and no, and None is blank.
    """
    from rich.cells import cell_len

    lines = [[printable(_text(cell)) for cell in line] for line in ([head] if head else []) + list(rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        echo("  ".join(cells).rstrip())


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)
