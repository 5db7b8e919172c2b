import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shapely

from sparseshot.cells import Cells, read_cells
from sparseshot.cli import main

LOSSES = pytest.mark.filterwarnings("ignore::sparseshot.errors.SparseshotWarning")


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    path = tmp_path / "marks.geojson"
    outline = [shapely.box(x, 0, x + 4, 4) for x in range(0, 100, 5)]
    xy = shapely.get_coordinates(shapely.centroid(outline))
    Cells(
        xy, classes=("tumour", "immune"), label=np.arange(20) % 2, outline=outline, id=np.arange(20), mpp=0.25
    ).write(path)
    return path


def test_convert_keeps_everything(marks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(marks), str(tmp_path / "a.parquet")]) == 0
    assert main(["convert", str(tmp_path / "a.parquet"), str(tmp_path / "b.geojson")]) == 0
    assert (tmp_path / "b.geojson").read_bytes() == marks.read_bytes()
    assert "20 cells: 10 tumour, 10 immune" in capsys.readouterr().out


@LOSSES
def test_convert_to_a_mask_of_a_size(marks: Path, tmp_path: Path) -> None:
    assert main(["convert", str(marks), str(tmp_path / "a.tif"), "--size", "200x50"]) == 0
    assert len(read_cells(tmp_path / "a.tif", size_px=(200, 50))) == 20
    assert main(["convert", str(marks), str(tmp_path / "a.tif"), "--size", "big"]) == 2
    assert main(["convert", str(marks), str(tmp_path / "a.tif"), "--size", "0x0"]) == 2
    assert main(["convert", str(marks), str(tmp_path / "a.dat")]) == 2
    assert main(["convert", str(marks), str(tmp_path / "a.dat"), "--to", "csv"]) == 0
    assert main(["cells", str(tmp_path / "a.dat"), "--json"]) == 1


@LOSSES
def test_subsets_nest(marks: Path, tmp_path: Path) -> None:
    kept = {}
    for fraction in ("0.3", "0.6"):
        target = tmp_path / f"{fraction}.csv"
        assert main(["subset", str(marks), str(target), "--fraction", fraction]) == 0
        kept[fraction] = set(read_cells(target).id.tolist())  # type: ignore[union-attr]
    assert len(kept["0.3"]) == 6
    assert kept["0.3"] < kept["0.6"]
    assert main(["subset", str(marks), str(tmp_path / "no.csv")]) == 2
    assert not (tmp_path / "no.csv").exists()


def test_summary_for_people_and_for_scripts(marks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cells", str(marks), "--json", "--size", "50x50"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cells"] == 10
    assert content["classes"] == {"tumour": 5, "immune": 5}
    assert content["mpp"] == 0.25
    assert content["warnings"][0].startswith(f"{marks}: 10 cells outside")
    assert main(["cells", str(marks)]) == 0
    shown = capsys.readouterr().out
    assert "tumour" in shown
    assert "x 2–97, y 2–2 px" in shown


HOSTILE = "[bold]\x1b[2J\u202eT cell [/]"


def test_class_names_reach_the_terminal_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "marks.parquet"
    Cells([[1, 2]], classes=(HOSTILE,), label=[0]).write(path)
    assert main(["cells", str(path)]) == 0
    assert main(["convert", str(path), str(tmp_path / "b.parquet")]) == 0
    shown = capsys.readouterr()
    assert shown.out.count(r"[bold]\x1b[2J\u202eT cell [/]") == 2
    assert "\x1b" not in shown.out + shown.err
    assert main(["cells", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == {HOSTILE: 1}


def test_a_latin_1_terminal(tmp_path: Path) -> None:
    path = tmp_path / "marks.parquet"
    Cells([[1, 2], [3, 4]], classes=("病 α",), label=[0, 0], mpp=0.25).write(path)
    command = [sys.executable, "-m", "sparseshot", "cells", str(path)]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    ran = subprocess.run(command, env=latin, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"\u75c5 \u03b1" in ran.stdout
    assert "µm".encode("latin-1") in ran.stdout
    ran = subprocess.run([*command, "--json"], env=latin, capture_output=True, check=True)
    assert json.loads(ran.stdout.decode())["classes"] == {"病 α": 2}


def test_a_target_of_no_format_is_refused_before_anything_is_read(
    marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sparseshot.cells.read_cells", None)
    assert main(["convert", str(marks), str(tmp_path / "a.xlsx")]) == 2
    assert main(["subset", str(marks), str(tmp_path / "a.xlsx"), "--fraction", "0.5"]) == 2
    said = capsys.readouterr().err
    assert said.count("no format has this ending") == said.count("(convert --to)") == 2
