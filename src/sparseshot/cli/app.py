"""The application and its entry point: errors and warnings on one line, exit codes 0, 1, 2 and 130."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from sparseshot import __version__
from sparseshot.cli.output import complain, echo, running
from sparseshot.errors import InputError, SparseshotError, SparseshotWarning, was_interrupted

DONE, FAILED, USAGE_ERROR, STOPPED = 0, 1, 2, 130


def _plain(params: list[Any], ctx: typer.Context) -> list[Any]:
    """Return parameters whose help shows the type of one value, and none for options without a value."""
    for param in params:
        shown = "" if getattr(param, "is_flag", False) else param.display_type_rich(ctx=ctx) or ""
        text = re.sub(r"list\[(\w+)\]", lambda match: match[1].lower(), shown)
        param.display_type_rich = lambda ctx, text=text: text  # noqa: ARG005
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx), ctx)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx), ctx)


_JSON = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


class App(typer.Typer):
    """A group of commands with plain types in their help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=_Group, no_args_is_help=True, **options)

    def command(self, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
        """Add a command, with the option ``--json`` beside its own."""
        add = super().command(*arguments, **{"cls": _Command, **options})

        def add_with_json(function: Callable[..., None]) -> Callable[..., None]:
            @wraps(function)
            def run(*, as_json: bool, **given: Any) -> None:
                running.json = as_json
                function(**given)

            own = signature(function).parameters.values()
            json = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=_JSON)
            run.__annotations__ = function.__annotations__ | {"as_json": _JSON}
            run.__signature__ = Signature([*own, json])  # type: ignore[attr-defined]
            add(run)
            return function

        return add_with_json


app = App(
    name="sparseshot",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        echo(f"sparseshot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[  # main() accepts it anywhere
        bool, typer.Option("--debug", help="Show the traceback of an error. Allowed anywhere.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find every cell in a slide from a few marked ones.

    To see everything at work: `sparseshot demo`

    Example: `sparseshot train --slide a.svs --marks a.geojson --out run`, then
    `sparseshot predict run slides/*.svs --out found`
    """


@contextmanager
def resumable() -> Iterator[None]:
    """Mark a block that the same command resumes after Ctrl-C."""
    running.resumable = True
    yield
    running.resumable = False


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 0 on success, 1 on failure, 2 on a usage error, 130 after Ctrl-C."""
    from sparseshot.cli import commands

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a Latin-1 terminal has no ≈ or α
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if arguments is None else arguments
    running.debug, running.resumable, running.json = "--debug" in arguments, False, False
    commands.load(arguments[0] if arguments else "")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(
                args=[word for word in arguments if word != "--debug"],
                prog_name="sparseshot",
                standalone_mode=False,
            )
        except SystemExit as stop:
            code = stop.code
        except (typer.Abort, KeyboardInterrupt):
            code = STOPPED
        except Exception as error:
            if was_interrupted(error):
                code = STOPPED
            elif running.debug:
                raise
            else:
                return _show_error(error)
    if code == STOPPED:
        echo("stopped; the same command resumes" if running.resumable else "stopped", err=True)
    return code if isinstance(code, int) else DONE


def _show_error(error: Exception) -> int:
    """Print an error on one line; return the exit code."""
    code = FAILED
    if isinstance(error, typer.TyperException):
        code = error.exit_code
        text = " ".join(error.format_message().split()).rstrip(".")
        if not text:  # no command was given, and the help has been printed
            return code
        if context := getattr(error, "ctx", None):
            text += f"; see {context.command_path} --help"
    elif isinstance(error, SparseshotError | OSError):
        code = USAGE_ERROR if isinstance(error, InputError) else FAILED
        text = str(error)
    elif isinstance(error, MemoryError):
        text = f"not enough memory ({error})" if str(error) else "not enough memory"
    else:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"{reason} (not foreseen: add --debug for the traceback, and please report it)"
    complain("error", text)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,
) -> None:
    if issubclass(category, SparseshotWarning):
        complain("warning", message)
    elif running.debug:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True)
