"""The script for QuPath, as far as it can be tested without QuPath."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.app_tree import leaves

from sparseshot.cli import main

DOCUMENTED = {
    "getCurrentServer",
    "getProject",
    "getAnnotationObjects",
    "getDetectionObjects",
    "exportObjectsToGeoJson",
    "importObjectsFromFile",
    "clearDetections",
    "fireHierarchyUpdate",
    "buildFilePath",
    "mkdirs",
}
"""Functions of QuPath's scripting class QP."""


def script(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["qupath-script", *options]) == 0
    return capsys.readouterr().out


def test_paths_are_strings_of_groovy(capsys: pytest.CaptureFixture[str]) -> None:
    text = script(capsys, "--model", '/a "b" $c', "--command", "C:\\bin\\sparseshot.exe", "--action", "train")
    assert 'def model = "/a \\"b\\" \\$c"' in text
    assert 'def command = "C:\\\\bin\\\\sparseshot.exe"' in text
    assert 'def action = "train"' in text
    assert "%" not in text


def test_a_run_is_named_by_its_whole_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.dumps(str(tmp_path / "run")) in script(capsys, "--model", "run")
    assert 'def model = "starter"' in script(capsys)


def test_a_starter_is_not_trained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qupath-script", "train"]) == 2
    assert "unexpected extra argument" in capsys.readouterr().err
    assert main(["qupath-script", "--action", "train"]) == 2
    assert "needs --model" in capsys.readouterr().err


def test_only_documented_functions_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    text = script(capsys)
    code = re.sub(r"(?m)//.*$|'[^'\n]*'|\"[^\"\n]*\"", "", text)
    called = set(re.findall(r"(?<![.\w])([a-z]\w*)\(", code)) - {"println", "run", "if", "for"}
    assert called == DOCUMENTED
    assert code.count("{") == code.count("}")
    assert code.count("(") == code.count(")")


def test_the_options_it_passes_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = script(capsys)
    for name in ("train", "predict"):
        (line,) = re.findall(rf'run\(\[command, "{name}".*', text)
        flags = {flag for parameter in leaves()[name].params for flag in parameter.opts}
        assert set(re.findall(r'"(--[\w-]+)"', line)) | {"--mpp"} <= flags
