"""One entry for every command: errors in one line, warnings in one line, exit codes 0, 1 and 2."""

import sys
import warnings
from typing import Annotated, TextIO

import typer

from sparseshot import __version__
from sparseshot.errors import InputError, SparseshotError, SparseshotWarning

app = typer.Typer(
    name="sparseshot",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_state = {"debug": False}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparseshot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001  its callback does the work
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find every cell in a slide from the few that somebody marked."""
    _state["debug"] = debug


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
    elif _state["debug"]:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; give 0 if it did its work, 1 if the work failed, 2 if it was asked wrongly."""
    from sparseshot.cli import commands  # noqa: F401  each module there adds its commands to the app

    with warnings.catch_warnings():
        warnings.showwarning = _one_line_warning
        try:
            app(args=arguments, prog_name="sparseshot")
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 0
        except (SparseshotError, OSError) as error:
            if _state["debug"]:
                raise
            typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
            return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
