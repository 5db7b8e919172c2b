"""``experiment`` and ``report``: what they print, and their exit codes."""

import json
from pathlib import Path

import pytest
from tests.experiments.made_results import write_results
from tests.experiments.tiny_data import tiny_tnbc

from sparseshot.cli import main
from sparseshot.experiments import open_experiment


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_shows_every_shipped_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["tnbc-headline", "4", "runs"] for line in lines)
    assert main(["experiment", "--list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["segmentation"]["runs"] == 8 * 4 * 10


def test_dry_run_shows_the_runs_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "tnbc-headline", "--dry-run", "--only", "*-ce-*"]) == 0
    assert capsys.readouterr().out.split() == ["tnbc-segment-ce-0.3-s0", "tnbc-segment-ce-1-s0"]


def test_the_paper_is_run_on_the_sets_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tiny_tnbc(tmp_path / "data")
    assert main(["experiment", "paper", "--root", str(root), "--dry-run"]) == 0
    said = capsys.readouterr()
    names = said.out.split()
    assert len(names) == len(set(names)) > 80
    assert all(name.startswith("tnbc-") for name in names)
    assert {"tnbc-detect-weak-75-0.3-s0", "tnbc-detect-linear-0.6-s0"} < set(names)
    for missing in (
        "CoNSeP",
        "CPM15",
        "CPM17",
        "CRCHisto",
        "Kumar",
        "MoNuSeg",
        "WBC-NuClick",
        "BRCA-M2C",
        "TIL",
    ):
        assert f"missing: {missing}" in said.err
    assert said.err.count("get it from https://") == 8
    assert main(["experiment", "--list"]) == 0
    assert any(line.split()[:2] == ["paper", "666"] for line in capsys.readouterr().out.splitlines())


def test_a_folder_does_not_hide_an_experiment_of_its_name(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "starter").mkdir()
    assert main(["experiment", "starter", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "experiment --list"),
        (["tnbc-headline"], 2, "--out DIR"),
        (["tnbc-headline", "--out", "o"], 2, "--root DIR"),
        (["nothing-like-it"], 1, "tnbc-headline"),
        (["tnbc-headline", "--root", "nowhere", "--out", "o"], 1, "nowhere"),
        (["tnbc-headline", "--root", ".", "--out", "o", "--only", "x"], 2, "--only 'x'"),
    ],
)
def test_a_usage_error_names_the_option(
    arguments: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    assert main(["experiment", *arguments]) == code
    assert expected in capsys.readouterr().err
    assert not list(empty_folder.iterdir())


def test_a_finished_experiment_has_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path / "out", open_experiment("tnbc-headline"))
    arguments = ["experiment", "tnbc-headline", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "nothing to do: all 4 runs are done" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["runs"], summary["ran"], summary["failed"]) == (4, 0, {})
    assert set(summary["scores"]["tnbc-segment-ece-0.3-s0"]) == {"half", "calibrated"}


def test_a_failed_run_is_exit_code_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparseshot.experiments.running.PERFORM", "tests.experiments.made_worker:fail")
    root = tiny_tnbc(tmp_path / "data")
    write_results(tmp_path / "out", open_experiment("tnbc-headline"), missing=("tnbc-segment-ce-1-s0",))
    assert main(["experiment", "tnbc-headline", "--root", str(root), "--out", str(tmp_path / "out")]) == 1
    output = capsys.readouterr()
    assert "failed: tnbc-segment-ce-1-s0: ended with code 1: no luck" in output.out
    assert "3 of 4 runs are done" in output.out
    assert "[1/1] tnbc-segment-ce-1-s0: failed" in output.err


def test_report_writes_page_markdown_figures_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "out", open_experiment("tnbc-headline"))
    arguments = ["report", str(tmp_path / "out"), "--figures", str(tmp_path / "f")]
    assert main([*arguments, "--metrics-json", str(tmp_path / "m.json")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert all(path.is_file() for path in written)
    assert written[:2] == [tmp_path / "out" / "report.html", tmp_path / "out" / "report.md"]
    assert {path.name for path in written} >= {"m.json", "tnbc-segment-curves.svg"}


def test_a_report_needs_the_suffix_html_and_an_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "--out", "x.pdf"]) == 2
    assert ".html" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no experiment" in capsys.readouterr().err
