"""The commands of the app, and whether it accepts a command line."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import typer.main

from sparseshot.cli import commands
from sparseshot.cli.app import app

commands.load()

Command = Any  # typer's class for it is not public


def tree() -> Command:
    """Return the app as typer runs it."""
    return typer.main.get_command(app)


def all_commands() -> dict[str, Command]:
    """Return every command and group by its words: ``train``, ``data``, ``data list``, …."""
    return dict(_below("", tree()))


def leaves() -> dict[str, Command]:
    """Return the commands that are not groups."""
    return {name: command for name, command in all_commands().items() if not hasattr(command, "commands")}


def _below(name: str, command: Command) -> Iterator[tuple[str, Command]]:
    yield name, command
    for part, child in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {part}".strip(), child)


def parse_command(words: Sequence[str]) -> str:
    """Parse ``sparseshot …`` without running it; return the command, or raise what a user would see."""
    program, *rest = words
    assert program == "sparseshot", f"{shlex.join(words)} does not begin with sparseshot"
    command, name = tree(), ""
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        part, *rest = rest
        assert part in command.commands, f"sparseshot {name} has no command {part!r}"
        command, name = command.commands[part], f"{name} {part}".strip()
    if not hasattr(command, "commands"):
        command.make_context(f"sparseshot {name}", list(rest))
    return name


def check_mention(words: Sequence[str]) -> None:
    """Check that a command named in a text exists and has the flags named; arguments may be missing."""
    command = tree()
    for word in words[1:]:
        if hasattr(command, "commands") and not word.startswith("-"):
            assert word.split("|")[0] in command.commands, f"there is no command {' '.join(words)}"
            command = command.commands[word.split("|")[0]]
    flags = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    unknown = {word.split("=")[0] for word in words if word.startswith("-")} - flags
    assert not unknown, f"{' '.join(words)}: there is no {unknown}"
