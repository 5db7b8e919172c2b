"""Every writer, then its reader, is the identity, to the precision of the format."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tests.cells.made import assert_same, tables

from sparseshot.cells import Cells, rasterise, read_cells, trace, write_cells
from sparseshot.errors import SparseshotWarning


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


quick = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("name", ["cells.geojson", "cells.json", "cells.geojson.gz", "cells.zip"])
@given(cells=tables())
@quick
def test_qupath(tmp_path: Path, name: str, cells: Cells) -> None:
    cells.write(tmp_path / name)
    came = read_cells(tmp_path / name)
    if not len(cells):  # a column without a value leaves no trace
        cells = replace(cells, kind=came.kind, id=came.id, score=None, name=None, measurements={})
    measured = {name: column for name, column in cells.measurements.items() if not np.isnan(column).all()}
    assert_same(came, replace(cells, measurements=measured), places_px=0.01, shapes_px=0.0072)


@given(cells=tables())
@quick
def test_geoparquet(tmp_path: Path, cells: Cells) -> None:
    path = tmp_path / "cells.parquet"
    cells.write(path)
    assert_same(read_cells(path), cells if len(cells) else read_cells(path))
    assert read_cells(path).classes == cells.classes


@given(cells=tables(holes=False, nuclei=False, named=False))
@quick
def test_coco(tmp_path: Path, cells: Cells) -> None:
    path = tmp_path / "cells.coco.json"
    cells.write(path)
    came = read_cells(path)
    measured = {n: c for n, c in cells.measurements.items() if not np.isnan(c).all()}
    wanted = replace(cells, kind=None, measurements=measured)
    if not len(cells):
        wanted = replace(wanted, id=None, score=None)
    assert_same(came, wanted)


@pytest.mark.parametrize("name", ["cells.xml", "cells.asap.xml"])
@given(data=st.data())
@quick
def test_xml(tmp_path: Path, name: str, data: st.DataObject) -> None:
    cells = data.draw(
        tables(
            several=False,
            scores=False,
            measured=False,
            nuclei=False,
            named=False,
            holes="asap" not in name,
        )
    )
    cells.write(tmp_path / name)
    came = read_cells(tmp_path / name)
    wanted = replace(cells, kind=None, mpp=None if "asap" in name else cells.mpp, colors=came.colors)
    order = np.argsort(cells.id) if cells.id is not None else slice(0)
    of_came = np.argsort(came.id) if came.id is not None else slice(0)
    if cells.colors is not None:
        assert came.colors == cells.colors
    if not len(cells):
        wanted = replace(wanted, id=came.id, outline=came.outline)
    assert_same(came[of_came], wanted[order], shapes_px=1e-9)


@pytest.mark.parametrize("name", ["x_um", "score", "class", "measurement x"])
def test_csv_keeps_measurements_that_are_named_like_columns(tmp_path: Path, name: str) -> None:
    cells = Cells([[1, 2]], measurements={name: [0.5]})
    cells.write(tmp_path / "cells.csv")
    came = read_cells(tmp_path / "cells.csv")
    assert {key: column.tolist() for key, column in came.measurements.items()} == {name: [0.5]}
    assert came.xy.tolist() == [[1, 2]]
    assert came.score is None


@pytest.mark.parametrize("name", ["cells.csv", "cells.tsv", "cells.csv.gz"])
@given(cells=tables(shapes=False, regions=False, mpp=False))
@quick
def test_csv(tmp_path: Path, name: str, cells: Cells) -> None:
    cells.write(tmp_path / name)
    came = read_cells(tmp_path / name)
    used = [name for i, name in enumerate(cells.classes) if i in cells.label]
    for column in (came, cells):
        assert column.outline is None
    assert [came.classes[i] if i >= 0 else None for i in came.label] == [
        cells.classes[i] if i >= 0 else None for i in cells.label
    ]
    if len(cells):
        assert set(came.classes) == set(used)
        plain = np.zeros(len(cells), np.int16)
        wanted = replace(cells, classes=("a",), label=plain, colors=None)
        assert_same(replace(came, classes=("a",), label=plain), wanted)


label_images = hnp.arrays(
    np.uint32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=8), elements=st.integers(0, 3)
)


@pytest.mark.parametrize("name", ["mask.png", "mask.tif", "mask.npy"])
@pytest.mark.parametrize("largest", [3, 300, 70_000, 2**32 - 1])
@given(labels=label_images)
@settings(quick, max_examples=20)
def test_masks(tmp_path: Path, name: str, largest: int, labels: NDArray[np.uint32]) -> None:
    if largest > 65535 and name == "mask.png":
        return
    labels = np.where(labels == 3, largest, labels).astype(np.uint32)
    labels.flat[0], labels.flat[-1] = 1, 2  # not a binary mask
    values, xy, outline = trace(labels)
    cells = Cells(xy, id=values, outline=outline)
    write_cells(cells, tmp_path / name, size_px=(labels.shape[1], labels.shape[0]))
    came = read_cells(tmp_path / name)
    assert_same(came, cells)
    drawn = rasterise(came, labels.shape, by="instance")
    np.testing.assert_array_equal(np.concatenate([[0], values])[drawn], labels)


def test_what_a_format_cannot_hold_is_counted(tmp_path: Path) -> None:
    ring = shapely.box(0, 0, 9, 9).difference(shapely.box(3, 3, 4, 4))
    cells = Cells(
        [[4, 4], [20, 20]],
        classes=("a", "b"),
        label=[0, 1],
        outline=[shapely.MultiPolygon([ring, shapely.box(20, 0, 21, 1)]), None],
        id=["one", "two"],
        score=[1, 0.5],
        regions=[shapely.box(0, 0, 30, 30)],
        measurements={"area": [1, 2]},
        nucleus=[shapely.box(1, 1, 2, 2), None],
        name=["Anna's", None],
    )
    lost = ["1 measurement left out", "1 nucleus left out", "1 name left out"]
    told = {
        "a.csv": ["1 outline left out", "1 exhaustive region left out"],
        "a.coco.json": ["1 hole in outlines filled"],
        "a.xml": ["2 scores left out", "1 measurement left out", "1 outline of several parts cut"],
        "a.asap.xml": ["1 hole in outlines filled"],
        "a.png": [
            "2 ids replaced by numbers",
            "1 cell without outline drawn as a disc",
            "2 classes left out",
            *lost,
        ],
    }
    for name, losses in told.items():
        with pytest.warns(SparseshotWarning) as caught:
            cells.write(tmp_path / name)
        assert len(caught) == 1
        for loss in losses:
            assert loss in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells.write(tmp_path / "a.parquet")
        cells.write(tmp_path / "a.geojson")
