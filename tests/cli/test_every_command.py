"""What all commands share: help, examples, flags, exit codes, errors on one line."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import typer
from tests.cli.app_tree import all_commands, leaves, parse_command

from sparseshot.cli import app as app_module
from sparseshot.cli import main, output

SHARED = ("--json", "--mpp", "--device", "--precision", "--seed", "--root", "--dataset")


@pytest.mark.parametrize("name", all_commands())
def test_help_has_an_example_that_parses(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: sparseshot {name}" in shown
    assert "<bool>" not in shown
    assert "<list" not in shown
    text = all_commands()[name].help
    examples = re.findall(r"`(sparseshot [^`]+)`|^ {4}(sparseshot .+)$", text, flags=re.MULTILINE)
    typed = [next(filter(None, groups)) for groups in examples]
    parsed = [parse_command(shlex.split(example)) for example in typed]
    assert any(command.startswith(name) for command in parsed)
    assert all(example.split(" --")[0] in shown for example in typed)


@pytest.mark.parametrize("name", leaves())
def test_every_option_has_help_and_every_command_has_json(name: str) -> None:
    parameters = leaves()[name].params
    assert all(parameter.help for parameter in parameters if parameter.name != "help")
    assert "--json" in {flag for parameter in parameters for flag in parameter.opts}


def test_options_of_one_name_have_one_meaning() -> None:
    meanings = defaultdict(set)
    for command in leaves().values():
        for parameter in command.params:
            for flag in set(parameter.opts) & set(SHARED):
                meanings[flag].add((parameter.help, parameter.name))
    assert set(meanings) == set(SHARED)
    assert {flag: meaning for flag, meaning in meanings.items() if len(meaning) > 1} == {}


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from sparseshot.cli import main, output
from tests.cli.app_tree import all_commands
for name in all_commands():
    assert main([*name.split(), "--help"]) == 0
print("loaded:", *({"numpy", "torch", "matplotlib", "pyarrow", "shapely"} & set(sys.modules)))
"""
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "'trian'"),
        (["train"], "'--out'; see sparseshot train --help"),
        (["train", "--out", "o", "--task", "count"], "'count' is not one of 'segment', 'detect'"),
        (["train", "--out", "o", "--seed", "x"], "'--seed'"),
        (["data", "check", "tnbc", "--rot", "data"], "--rot"),
        (["train", "--out", "o"], "--dataset with --root"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_two(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert expected in line


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: sparseshot" in capsys.readouterr().out


def test_an_unforeseen_error_is_one_line_and_a_traceback_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("deep\ninside")

    monkeypatch.setattr("sparseshot.cells.read_cells", fail)
    assert main(["cells", __file__]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: KeyError: 'deep\\ninside' (not foreseen")
    for arguments in (["--debug", "cells", __file__], ["cells", __file__, "--debug"]):
        with pytest.raises(KeyError):
            main(arguments)


@pytest.mark.parametrize(
    ("can_resume", "expected"), [(True, "stopped; the same command resumes\n"), (False, "stopped\n")]
)
def test_an_interrupt_is_one_line_and_exit_code_130(
    can_resume: bool, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        if can_resume:
            with app_module.resumable():
                raise KeyboardInterrupt
        raise KeyboardInterrupt

    monkeypatch.setattr("sparseshot.cells.read_cells", work)
    assert main(["cells", __file__]) == 130
    assert capsys.readouterr().err == expected


def test_an_interrupt_that_compiled_code_turned_into_another_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("sparseshot.cells.read_cells", work)
    assert main(["cells", __file__]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_nothing_is_resumable_after_the_block(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        with app_module.resumable():
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr("sparseshot.cells.read_cells", work)
    assert main(["cells", __file__]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m sparseshot data list --json | head -1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert ran.stdout == "[\n"
    assert ran.stderr == ""


def test_the_shell_completes_commands_options_and_choices() -> None:
    def completed(line: str) -> list[str]:
        environment = os.environ | {
            "_SPARSESHOT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        script = Path(sys.executable).parent / "sparseshot"
        return subprocess.run(
            [script], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("sparseshot tra") == ["train"]
    assert completed("sparseshot data f") == ["fetch"]
    assert completed("sparseshot train --task d") == ["detect"]
    assert "--json" in completed("sparseshot predict --j")


def test_json_has_null_for_nan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.running, "json", True)
    output.print_json({"path": Path("a/b"), "recall": float("nan")})
    assert json.loads(capsys.readouterr().out) == {"path": "a/b", "recall": None}


def test_the_exit_code_of_a_command_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object, **__: object) -> None:
        raise typer.Exit(1)

    monkeypatch.setattr("sparseshot.cells.read_cells", leave)
    assert main(["cells", __file__]) == 1
