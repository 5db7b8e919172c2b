"""``sparseshot classify``: cells of others, with kinds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.training.test_kind_marks import two_kinds

from sparseshot.cells import read_cells
from sparseshot.cli import main


@pytest.fixture
def files(tmp_path: Path) -> Path:
    slide, found, truth = two_kinds()
    Image.fromarray(slide.pixels).save(tmp_path / "a.png")
    found.write(tmp_path / "found.geojson")
    replace(truth[:40], mpp=0.5).write(tmp_path / "some.geojson")
    return tmp_path


def classify(folder: Path, out: str, *more: str, cells: str = "found.geojson") -> int:
    paths = {"slide": "a.png", "cells": cells, "marks": "some.geojson", "out": out}
    words = [word for name, file in paths.items() for word in (f"--{name}", str(folder / file))]
    return main(["classify", *words, "--mpp", "0.5", "--device", "cpu", *more])


def test_the_same_cells_are_written_with_kinds(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert classify(files, "kinds.geojson", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["file"] == str(files / "kinds.geojson")
    found, kinds = read_cells(files / "found.geojson"), read_cells(files / "kinds.geojson")
    assert set(kinds.classes) <= {"Other", "dark", "red"}
    assert abs(kinds.counts()["red"] - 40) <= 8
    assert shapely.equals_exact(kinds.outline, found.outline).all()
    for column in ("xy", "id", "score"):
        np.testing.assert_array_equal(getattr(kinds, column), getattr(found, column))
    assert {*found.measurements, "Probability red"} <= {*kinds.measurements}


def test_any_format_is_read_and_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(files / "found.geojson"), str(files / "found.parquet")]) == 0
    assert classify(files, "kinds.parquet", cells="found.parquet") == 0
    assert "120 cells: " in capsys.readouterr().out
    assert classify(files, "kinds.geojson") == 0
    one, other = read_cells(files / "kinds.parquet"), read_cells(files / "kinds.geojson")
    names = [np.array(each.classes)[each.label].tolist() for each in (one, other)]
    assert names[0] == names[1]
    np.testing.assert_allclose(one.xy, other.xy, atol=0.01)


def test_bad_input_is_one_line_and_nothing_is_written(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classify(files, "kinds.xlsx") == 2
    assert "no format has this ending" in capsys.readouterr().err
    found = read_cells(files / "found.geojson")
    replace(found, xy=found.xy + 1000, outline=None).write(files / "beside.geojson")
    assert classify(files, "kinds.geojson", cells="beside.geojson") == 2
    assert "120 of 120 cells lie outside a.png" in capsys.readouterr().err
    assert classify(files, "kinds.geojson", cells="missing.geojson") != 0
    assert classify(files, "kinds.geojson", "--model", str(files / "none")) != 0
    assert not (files / "kinds.geojson").exists()
