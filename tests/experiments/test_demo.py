"""The demo makes everything, only what is missing, and never writes into another folder."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparseshot.cells import read_cells
from sparseshot.cli import main
from sparseshot.errors import OutputError, SparseshotError
from sparseshot.experiments import running
from sparseshot.experiments.demo import QUICK, Demo, DemoFolder, DemoPlan, find_on_slide, run_demo
from sparseshot.experiments.demo_page import make_page
from sparseshot.files import locked
from sparseshot.images import open_slide
from sparseshot.pages import to_html
from sparseshot.prediction import read_prediction
from sparseshot.work import Event, Here, Report

pytestmark = pytest.mark.xdist_group("demo")  # which is made once

TINY = DemoPlan(
    losses=("ce", "ece"),
    width_px=700,
    height_px=500,
    tissue_fraction=1.0,
    steps=6,
    crop_px=64,
    channels=4,
    view_um=60.0,
)


Step = tuple[str, int, int | None]


def recording(steps: list[Step]) -> Report:
    """Record stage, done and total of everything that is reported."""
    return lambda event: steps.append((event.stage, event.done, event.total))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, list[Step]]:
    """Return one finished demo, made in this process; tests that change it take a copy."""
    steps: list[Step] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Processes", lambda _: Here())
        return run_demo(tmp_path_factory.mktemp("demo") / "out", TINY, report=recording(steps)), steps


@pytest.fixture
def copy(made: tuple[Demo, list[Step]], tmp_path: Path) -> DemoFolder:
    shutil.copytree(made[0].folder.path, tmp_path / "out")
    return DemoFolder.open(tmp_path / "out")


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PERFORM", "tests.experiments.made_worker:fail")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def half_written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".part" in path.name]


def test_everything_is_there(made: tuple[Demo, list[Step]]) -> None:
    demo, steps = made
    folder = demo.folder
    truth, marks = read_cells(folder.truth), read_cells(folder.marks)
    assert not demo.was_there
    assert len(marks) == pytest.approx(0.2 * len(truth), abs=2)
    with open_slide(folder.slide) as slide:
        assert slide.size == (700, 500)
        assert slide.mpp == pytest.approx(0.25)
    for loss in TINY.losses:
        own = folder.run(loss)
        cells, found = read_cells(own / "cells.parquet"), own / "found"
        assert len(cells) == len(read_prediction(found)) == len(read_cells(found / "qupath.zip"))
    assert {title for title, _, _ in steps} == {"slide", "runs", "page"}
    assert all(total is None or 0 <= done <= total for _, done, total in steps)
    assert half_written(folder.path) == []


def test_the_scores_are_of_what_was_found(made: tuple[Demo, list[Step]]) -> None:
    demo, _ = made
    truth = read_cells(demo.folder.truth)
    for loss, numbers in demo.numbers["losses"].items():
        own = demo.folder.run(loss)
        for point, cells in (
            ("calibrated", read_prediction(own / "found")),
            ("half", read_prediction(own / "half")),
        ):
            score = numbers[point]
            assert cells.score is None or (cells.score >= np.float32(score["threshold"])).all()
            assert score["found"] + score["false"] == len(cells)
            assert score["found"] + score["missed"] == len(truth)
            total = 2 * score["found"] + score["missed"] + score["false"]
            assert score["f1"] == pytest.approx(2 * score["found"] / total)


def test_the_page_needs_nothing_else(made: tuple[Demo, list[Step]]) -> None:
    folder = made[0].folder
    page = folder.page.read_text(encoding="utf-8")
    assert "http" not in re.sub(r"data:image/[a-z+]+;base64,[\w+/=]+", "", page)
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 3 + 2 + 6  # given, whole slide, closely
    assert all(source.startswith("data:image/") for source in sources)
    assert "<script" not in page
    for link in re.findall(r'href="([^"]*)"', page):
        assert f'id="{link[1:]}"' in page if link.startswith("#") else (folder.path / link).exists(), link


def test_the_page_shows_the_numbers(made: tuple[Demo, list[Step]]) -> None:
    demo, _ = made
    page = demo.folder.page.read_text(encoding="utf-8")
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)]
    shown = [row[2:] for row in rows if len(row) == 9]
    scores = [each[point] for each in demo.numbers["losses"].values() for point in ("half", "calibrated")]
    assert len(shown) == len(scores) == 4
    for row, score in zip(shown, scores, strict=True):
        assert row[0] == f"{score['f1']:.3f}"
        assert row[2] == f"{score['recall']:.3f}"
        assert row[4:] == [f"{score[name]:,}" for name in ("found", "missed", "false")]
    assert json.loads(demo.folder.numbers.read_text()) == demo.numbers


@pytest.mark.usefixtures("no_worker")
def test_a_second_call_does_nothing(copy: DemoFolder) -> None:
    before = contents(copy.path)
    steps: list[Step] = []
    demo = run_demo(copy.path, TINY, report=recording(steps))
    assert demo.was_there
    assert steps == []
    assert contents(copy.path) == before


@pytest.mark.usefixtures("no_worker")
def test_only_what_is_missing_is_made(copy: DemoFolder) -> None:
    before = contents(copy.path)
    copy.page.unlink()
    copy.marks.unlink()
    (copy.path / ".slide.x.part.tif").write_bytes(b"half a slide")
    demo = run_demo(copy.path, TINY)
    after = contents(copy.path)
    assert not demo.was_there
    assert after.keys() == before.keys()
    changed = {name for name, content in after.items() if content != before[name]}
    assert changed == {"index.html", "numbers.json"}  # they say how long it took


@pytest.mark.usefixtures("no_worker")
def test_a_worker_that_fails_is_an_error(copy: DemoFolder) -> None:
    copy.page.unlink()
    (copy.run("ece") / "metrics.json").unlink()
    with pytest.raises(SparseshotError, match=r"ece: .*ended with code 1: no luck; more is in .*output\.txt"):
        run_demo(copy.path, TINY)
    assert not copy.page.exists()


@pytest.mark.usefixtures("no_worker")
def test_a_moved_folder_is_still_finished(copy: DemoFolder, tmp_path: Path) -> None:
    copy.path.rename(tmp_path / "moved")
    assert run_demo(tmp_path / "moved", TINY).was_there


def test_another_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        run_demo(tmp_path, TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_demo_of_another_size_is_left_alone(copy: DemoFolder) -> None:
    before = contents(copy.path)
    with pytest.raises(OutputError, match="width_px 700 instead of"):
        run_demo(copy.path, QUICK)
    assert contents(copy.path) == before


def test_a_broken_plan_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"what": 1}')
    with pytest.raises(SparseshotError, match="holds work with"):
        run_demo(tmp_path, TINY)


def test_ctrl_c_leaves_nothing_half_written(copy: DemoFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.page.unlink()
    (copy.run("ece") / "metrics.json").unlink()
    monkeypatch.setattr(running, "PERFORM", "tests.experiments.made_worker:wait")
    pid = copy.run("ece") / "pid"

    def press(event: Event) -> None:
        if pid.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(copy.path, TINY, report=press)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert half_written(copy.path) == []
    assert not copy.page.exists()


def test_a_killed_loss_resumes(made: tuple[Demo, list[Step]], tmp_path: Path) -> None:
    shutil.copytree(made[0].folder.path, tmp_path / "out")
    folder = DemoFolder.open(tmp_path / "out")
    own = folder.run("ece")
    before = contents(own / "found")
    before.pop("state.json")  # it has the seconds
    (own / "cells.parquet").unlink()
    shutil.rmtree(own / "found")
    _, metrics = find_on_slide(TINY.run("ece"), made[0].folder.path, own)
    after = contents(own / "found")
    assert {name: after[name] for name in after if name != "state.json"} == before
    assert metrics["evaluation"]["half"]["pooled"] == made[0].numbers["losses"]["ece"]["half"]["f1"]


def test_only_one_process_works_in_a_folder(copy: DemoFolder) -> None:
    copy.page.unlink()
    with locked(copy.path), pytest.raises(OutputError, match="at work here"):
        run_demo(copy.path, TINY)


def test_the_command(
    copy: DemoFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparseshot.experiments.demo.QUICK", TINY)
    copy.page.unlink()
    assert main(["demo", "--quick", "--out", str(copy.path), "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers == json.loads(copy.numbers.read_text())
    assert main(["demo", "--quick", "--out", str(copy.path)]) == 0
    said = capsys.readouterr()
    assert "finished before" in said.out
    assert said.err == ""
    for path in (copy.page, copy.slide, copy.marks, copy.run("ece") / "cells.parquet"):
        assert str(path) in said.out
    for each in numbers["losses"].values():
        assert f"{each['half']['f1']:.3f}" in said.out


def test_three_losses_fit_on_the_page(copy: DemoFolder, made: tuple[Demo, list[Step]]) -> None:
    folder = DemoFolder(copy.path, replace(copy.plan, losses=("ce", "ece", "adaptive")))
    shutil.copytree(folder.run("ece"), folder.run("adaptive"))
    numbers = made[0].numbers
    losses = numbers["losses"] | {"adaptive": {**numbers["losses"]["ece"], "title": "Adaptive"}}
    page = to_html(make_page(folder, {**numbers, "losses": losses}))
    assert page.count("<img ") == 3 + 3 + 8
    assert "Adaptive, calibrated: " in page
