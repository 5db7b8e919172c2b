import warnings
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image

from sparseshot.cells import Cells
from sparseshot.errors import TrainingWarning
from sparseshot.models.labelling import REJECTED
from sparseshot.training.annotated import TrainingData
from sparseshot.training.same_cells import merge_marks

GRID = np.array([[x, y] for x in range(20, 220, 40) for y in range(20, 220, 40)], float)


def test_two_files_of_one_slide_count_each_cell_once(tmp_path: Path) -> None:
    Image.fromarray(np.full((256, 256, 3), (180, 120, 180), np.uint8)).save(tmp_path / "a.png")
    one = Cells(GRID, classes=("tumour",), mpp=0.5)
    label = np.zeros(len(GRID) + 1, np.int16)
    label[3] = 1
    other = Cells(
        np.concatenate([GRID + np.array([3, -2]), [[110.0, 110.0]]]),
        classes=("tumour", "immune"),
        label=label,
        mpp=0.5,
    )
    one.write(tmp_path / "one.geojson")
    other.write(tmp_path / "other.geojson")
    pairs = tuple((tmp_path / "a.png", tmp_path / name) for name in ("one.geojson", "other.geojson"))
    with pytest.warns(TrainingWarning) as said:
        ((slide,), _) = TrainingData(pairs=pairs, mpp=0.5, everywhere=True).load()
    assert slide.marks.counts() == {"tumour": len(GRID) + 1, "immune": 0}
    told = [str(each.message) for each in said]
    assert told[0] == "a.png: 25 marks are of cells that another mark is of; each cell counts once"
    assert told[1] == (
        "a.png: 1 cell has marks of two classes: tumour and immune at (20, 140), learned as tumour"
    )


def test_a_cell_marked_fifty_times_counts_once() -> None:
    random = np.random.default_rng(0)
    clicks = np.concatenate([GRID, GRID[7] + random.uniform(-0.6, 0.6, (50, 2))])
    with pytest.warns(TrainingWarning, match="50 marks are of cells that another mark is of"):
        merged = merge_marks([Cells(clicks, mpp=0.5)], "a")
    assert np.array_equal(merged.xy, GRID)


def test_all_marks_of_a_third_person_on_one_cell_are_merged() -> None:
    tables = [
        Cells([[10.0, 10.0]], mpp=1),
        Cells([[11.5, 10.0]], mpp=1),
        Cells([[9.0, 9.0], [9.5, 9.0]], mpp=1),
    ]
    with pytest.warns(TrainingWarning, match="3 marks are of cells"):
        assert merge_marks(tables, "a").xy.tolist() == [[10, 10]]


def test_neighbours_are_not_merged() -> None:
    near = Cells([[0.0, 0.0], [2.2, 0.0]], mpp=0.5)  # 1.1 µm apart, by one person
    halves = np.array([shapely.box(0, 0, 20, 6), shapely.box(0, 6, 20, 12)], object)
    touching = Cells(shapely.get_coordinates(shapely.centroid(halves)), outline=halves, mpp=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(merge_marks([near], "a")) == 2
        assert len(merge_marks([touching[:1], touching[1:]], "a")) == 2
    with pytest.warns(TrainingWarning, match="2 marks are of cells"):  # both marked both
        assert len(merge_marks([near, near], "a")) == 2


def test_an_outline_stays_rather_than_a_point_and_rejections_stay_too() -> None:
    nucleus = np.array([shapely.Point(50, 50).buffer(10)], object)
    outlined = Cells([[50.0, 50.0]], outline=nucleus, classes=("tumour",), mpp=0.5)
    moved = shapely.transform(nucleus, lambda xy: xy + np.array([3, 0]))
    shifted = Cells([[53.0, 50.0]], outline=moved, classes=("tumour",), mpp=0.5)
    rejected = Cells([[50.0, 50.0]], classes=(REJECTED,), mpp=0.5)
    with pytest.warns(TrainingWarning, match="1 mark is of a cell"):
        merged = merge_marks([Cells([[51.0, 50.0]], classes=("tumour",), mpp=0.5), outlined, rejected], "a")
    assert merged.counts() == {"tumour": 1, REJECTED: 1}
    assert merged.outline is not None
    assert merged.outline[0] == nucleus[0]
    with pytest.warns(TrainingWarning, match="1 mark is of a cell"):
        assert len(merge_marks([outlined, shifted], "a")) == 1
