"""Kinds that follow clicks, and regions to count in."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from starlette.testclient import TestClient
from tests.studio.small_project import MPP, past_run, small_studio

from sparseshot.cells import Cells, read_cells
from sparseshot.models.kinds import rekind
from sparseshot.models.model_files import load_model
from sparseshot.studio.api import make_api
from sparseshot.studio.studio import Studio


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    """Open a slide whose found cells are of two kinds, by the first of their features."""
    opened, centres = small_studio(tmp_path)
    past_run(opened.runs, 1)
    features = np.random.default_rng(0).normal(size=(len(centres), 8))
    features[: len(centres) // 2, 0] += 6
    cells = Cells(centres, score=np.full(len(centres), 0.9), mpp=MPP)
    opened.runs.result(1, "1").add_view((0, 0, 1000, 700), cells, features)
    return opened


def clicked(studio: Studio, *, number: int = 5) -> int:
    """Click some lymphocytes, and some tumour cells; return how many cells there are."""
    xy = studio.runs.result(1, "1").cells()[0].xy
    half = len(xy) // 2
    for name, places in (("Lymphocyte", xy[:number]), ("Tumour", xy[half : half + number])):
        marks = [{"class": name, "at": place} for place in places.tolist()]
        studio.book.record([{"key": f"click {name} {number}", "slide": "1", "add": marks}])
    return len(xy)


def test_clicks_of_a_class_tell_all_found_cells_apart(studio: Studio) -> None:
    area = (0.0, 0.0, 1000.0, 700.0)
    before = studio.shown("1", "r1").version
    total = clicked(studio)
    cells = studio.shown("1", "r1")
    assert cells.version != before
    assert cells.cells.classes == ("Other", "Lymphocyte", "Tumour")
    counted = studio.shown("1", "r1", "counted")
    counts = counted.counts(threshold=0.5)
    assert sum(counts.values()) == total
    assert counted.counts(area, threshold=0.5) == counts
    assert counts["Lymphocyte"] > total / 3
    # Files have the same cells, with the probability of each kind.
    written = studio.decided("1", "r1", 0.5)
    assert {name: n for name, n in written.counts().items() if n} == {
        name: n for name, n in counts.items() if n
    }
    assert "Probability Lymphocyte" in written.measurements
    # The same clicks give the same answer, and it is not computed again.
    assert studio.shown("1", "r1") is cells


def test_kinds_are_those_of_the_command_line(studio: Studio) -> None:
    clicked(studio)
    cells, features = studio.runs.result(1, "1").cells()
    assert features is not None
    told = rekind(cells, features, studio.book.cells("1", mpp=MPP))
    assert studio.shown("1", "r1").counts(threshold=0) == told.counts()
    _, head = studio.kinds("r1")
    assert head is not None
    assert head.looks_around


def test_cells_below_the_threshold_are_no_surroundings(studio: Studio) -> None:
    clicked(studio)
    before = studio.shown("1", "r1")
    result = studio.runs.result(1, "1")
    cells, features = result.cells()
    assert features is not None
    weak = replace(cells, xy=cells.xy + 5, score=np.full(len(cells), 0.3))
    odd = np.full(features.shape, 50.0)
    both = Cells.concatenate([cells, weak])
    result.add_view((0, 0, 1000, 700), both, np.concatenate([features, odd]))
    assert studio.shown("1", "r1").counts(threshold=0.5) == before.counts(threshold=0.5)
    assert studio.decided("1", "r1", 0.5).counts() == before.counts(threshold=0.5)


def test_a_mark_that_names_no_kind_has_that_of_its_cell(studio: Studio) -> None:
    clicked(studio)
    before = studio.shown("1", "r1", "counted").counts(threshold=0.5)
    xy = studio.runs.result(1, "1").cells()[0].xy[20]
    studio.book.record([{"key": "any", "slide": "1", "add": [{"class": "cell", "at": xy.tolist()}]}])
    assert studio.shown("1", "r1", "counted").counts(threshold=0.5) == before
    assert studio.decided("1", "r1", 0.5).counts() == studio.decided("1", "r1", 0.5).counts()
    assert "cell" not in studio.decided("1", "r1", 0.5).classes


def test_regions_are_counted_with_intervals_and_written(studio: Studio, tmp_path: Path) -> None:
    clicked(studio)
    ring = [[100, 100], [500, 100], [500, 400], [100, 400]]
    xy = studio.runs.result(1, "1").cells()[0].xy
    inside = shapely.contains_xy(shapely.Polygon(ring), *xy.T)
    rejected = xy[inside][-1].tolist()
    with TestClient(make_api(studio)) as client:
        add = [{"count": ring, "name": "=hot spot"}, {"class": "not a cell", "at": rejected}]
        assert client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": add}]).status_code == 200
        whole, region = client.get("/slides/1/found/r1/regions.json").json()
        assert (whole["name"], whole["cells"]) == ("Whole slide", len(xy) - 1)
        assert region["cells"] == inside.sum() - 1
        assert region["mm2"] == pytest.approx(400 * 300 * 0.5**2 / 1e6)
        density, low, high = region["per_mm2"]
        assert low < density < high
        count, share, least, most = region["kinds"]["Lymphocyte"]
        assert share == count / region["cells"]
        assert least < share < most
        table = client.get("/slides/1/found/r1/regions.csv")
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert [row["Name"] for row in rows] == ["Whole slide", "'=hot spot"]
        assert int(rows[1]["Num cells"]) == region["cells"]
        file = client.get("/slides/1/found/r1/regions.geojson").json()
        (feature,) = file["features"]
        assert feature["properties"]["objectType"] == "annotation"
        assert feature["properties"]["measurements"]["Num cells"] == region["cells"]
        for bad in ({"count": ring}, {"count": ring, "name": "a", "class": "cell"}, {"name": "a"}):
            answer = client.post("/slides/1/marks", json=[{"key": "bbbbbbbb", "add": [bad]}])
            assert answer.status_code == 422
        # A region to count in is no mark: neither in files, nor for training.
        export = tmp_path / "marks.geojson"
        export.write_bytes(client.get("/slides/1/export/marks.geojson").content)
        assert len(read_cells(export)) == 11


def test_positive_nuclei_are_counted_in_regions_by_their_dab(tmp_path: Path) -> None:
    studio, centres = small_studio(tmp_path)
    with Image.open(tmp_path / "small.png") as image:
        pixels = np.array(image)
    rows, columns = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    for x, y in centres[::3]:
        pixels[np.hypot(columns + 0.5 - x, rows + 0.5 - y) < 7] = 110, 60, 30  # brown
    Image.fromarray(pixels).save(tmp_path / "small.png")
    past_run(studio.runs, 1)
    studio.runs.result(1, "1").add_view(
        (0, 0, 1000, 700), Cells(centres, score=np.full(len(centres), 0.9), mpp=MPP)
    )
    ring = [[0, 0], [500, 0], [500, 700], [0, 700]]
    studio.book.record([{"key": "region", "slide": "1", "add": [{"count": ring, "name": "left"}]}])
    inside = centres[:, 0] < 500
    with TestClient(make_api(studio)) as client:
        whole, region = client.get("/slides/1/found/r1/regions.json?positive_od=0.3").json()
        assert whole["positive"] is None
        assert region["positive"][0] == inside[::3].sum()
        assert region["positive"][1] == pytest.approx(inside[::3].sum() / inside.sum())
        table = client.get("/slides/1/found/r1/regions.csv?positive_od=0.3").text
        assert int(list(csv.DictReader(io.StringIO(table)))[1]["Num Positive"]) == inside[::3].sum()
        _, plain = client.get("/slides/1/found/r1/regions.json").json()
        assert plain["positive"] is None


def test_a_report_holds_counts_and_what_they_rest_on(studio: Studio) -> None:
    total = clicked(studio)
    ring = [[100, 100], [500, 100], [500, 400], [100, 400]]
    add = [{"count": ring, "name": "<b>hot</b>"}]
    studio.book.record([{"key": "region", "slide": "1", "add": add}])
    with TestClient(make_api(studio)) as client:
        page = client.get("/slides/1/found/r1/report.html?threshold=0.5").text
        assert f">{total:,}<" in page
        for part in ("Whole slide", "Lymphocyte", "cells per mm²", "5 Lymphocyte, 5 Tumour", "unknown"):
            assert part in page
        assert "<b>hot" not in page
        assert page.count("data:image") == 2
        (row,) = client.get("/cohort/r1.json").json()
        assert (row["cells"], row["whole"]) == (total, False)
        assert client.get("/cohort/r9.json").json() == [{"id": "1", "name": "small.png"}]


def test_a_model_is_downloaded_with_the_kinds_that_were_marked(studio: Studio, tmp_path: Path) -> None:
    past_run(studio.runs, 0)
    cells, _ = studio.runs.result(1, "1").cells()
    width = load_model("starter").config.kind_features
    features = np.random.default_rng(0).normal(size=(len(cells), width))
    features[: len(cells) // 2, 0] += 6
    studio.runs.result(0, "1").add_view((0, 0, 1000, 700), cells, features)
    clicked(studio)
    with TestClient(make_api(studio)) as client:
        answer = client.get("/models/r0.pt?name=my cells")
        assert "my%20cells.pt" in answer.headers["content-disposition"]
        (tmp_path / "model.pt").write_bytes(answer.content)
        assert load_model(tmp_path / "model.pt").classes == ("Other", "Lymphocyte", "Tumour")
        assert client.get("/models/r1.pt").status_code == 404


def test_areas_of_qupath_are_no_cells(studio: Studio, tmp_path: Path) -> None:
    file = tmp_path / "areas.geojson"
    xy = studio.runs.result(1, "1").cells()[0].xy
    shapes = [shapely.Point(*xy[0]).buffer(8), shapely.box(0, 0, 900, 600), shapely.Point(*xy[1]).buffer(8)]
    cells = Cells(
        [shape.centroid.coords[0] for shape in shapes],
        classes=("Tumour", "Region*"),
        label=[0, 0, 1],
        outline=np.array(shapes, object),
        mpp=MPP,
    )
    cells.write(file)
    with TestClient(make_api(studio)) as client:
        answer = client.post(
            "/slides/1/import?key=aaaaaaaa", files={"file": ("areas.geojson", file.read_bytes())}
        ).json()
    assert answer["marks"] == 1
    assert "2 areas" in answer["said"][0]
    assert "Region*" not in studio.book.classes
