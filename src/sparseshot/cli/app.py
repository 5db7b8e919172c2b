"""One entry for every command: errors in one line, warnings in one line, exit codes 0, 1, 2 and 130."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TextIO

import typer

from sparseshot import __version__
from sparseshot.errors import InputError, SparseshotError, SparseshotWarning

DONE, FAILED, USAGE_ERROR, STOPPED = 0, 1, 2, 130

app = typer.Typer(
    name="sparseshot",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass
class _State:
    debug: bool = False
    resumable: bool = False


_state = _State()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparseshot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[  # main() takes it from wherever it stands
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find every cell in a slide from the few that somebody marked.

    To see it all at work: `sparseshot demo`

    Example: `sparseshot train --slide a.svs --marks a.geojson --out run`, then
    `sparseshot predict run slides/*.svs --out found`
    """


@contextmanager
def resumable() -> Iterator[None]:
    """Say that what Ctrl-C stops in this block goes on when the same command is given again."""
    _state.resumable = True
    yield
    _state.resumable = False


def main(arguments: list[str] | None = None) -> int:
    """Run one command; give 0 if it did its work, 1 if that failed, 2 if asked wrongly, 130 after Ctrl-C."""
    from sparseshot.cli import commands  # noqa: F401  each module there adds its commands to the app

    arguments = sys.argv[1:] if arguments is None else arguments
    _state.debug, _state.resumable = "--debug" in arguments, False
    with warnings.catch_warnings():
        warnings.showwarning = _one_line_warning
        try:
            code = app(
                args=[word for word in arguments if word != "--debug"],
                prog_name="sparseshot",
                standalone_mode=False,
            )
        except SystemExit as stop:
            code = stop.code
        except typer.Abort:
            code = STOPPED
        except Exception as error:  # whatever it is, it is told in one line
            if _state.debug:
                raise
            return _tell(error)
    if code == STOPPED:
        typer.echo("stopped; the same command goes on" if _state.resumable else "stopped", err=True)
    return code if isinstance(code, int) else DONE


def _tell(error: Exception) -> int:
    """Print an error in one line; give the exit code that fits."""
    code = FAILED
    if isinstance(error, typer.TyperException):
        code = error.exit_code
        text = " ".join(error.format_message().split()).rstrip(".")
        if not text:  # no command was given, and the help is on the screen
            return code
        context = getattr(error, "ctx", None)
        text += f"; see {context.command_path} --help" if context else ""
    elif isinstance(error, SparseshotError | OSError):
        code = USAGE_ERROR if isinstance(error, InputError) else FAILED
        text = str(error)
    else:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"{reason} (not foreseen: add --debug to see where, and please report it)"
    typer.secho(f"error: {text}", fg=typer.colors.RED, err=True)
    return code


def _one_line_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,
) -> None:
    if issubclass(category, SparseshotWarning):
        typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)
    elif _state.debug:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True)


if __name__ == "__main__":
    sys.exit(main())
