"""QuPath's GeoJSON as its versions write it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cells.formats.geojson import FeatureStream
from sparseshot.errors import FormatError, RepairWarning

UUID = "12345678-aaaa-bbbb-cccc-0123456789ab"
SQUARE: list[list[list[float]]] = [[[10, 20], [14, 20], [14, 24.5], [10, 24.5], [10, 20]]]


def feature(geometry: dict[str, Any] | None, *, id: Any = UUID, **properties: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "Feature", "id": id, "geometry": geometry, "properties": properties}


def polygon(dx: float = 0, **more: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[[x + dx, y] for x, y in SQUARE[0]]]} | more


def write(path: Path, *features: Any, indent: int | None = None) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}, indent=indent))
    return path


# As QuPath 0.4 and later export it.
EXPORT = [
    feature(
        polygon(),
        objectType="detection",
        classification={"name": "Tumor", "color": [200, 0, 0]},
        measurements={"Area µm^2": 18.25, "Detection probability": 0.75},
    ),
    feature(
        {"type": "MultiPoint", "coordinates": [[1.25, 2], [3, 4.5]]},
        id="aaaaaaaa-0000-0000-0000-000000000001",
        objectType="annotation",
        classification={"names": ["Immune cells", "CD3"], "color": [160, 90, 160]},
    ),
    feature(
        polygon(100),
        id="aaaaaaaa-0000-0000-0000-000000000002",
        objectType="cell",
        classification={"name": "Tumor", "color": [200, 0, 0]},
    )
    | {"nucleusGeometry": {"type": "Polygon", "coordinates": [[[111, 21], [112, 21], [112, 22], [111, 21]]]}},
    feature(
        polygon(200, isEllipse=True, plane={"c": -1, "z": 0, "t": 0}),
        id="aaaaaaaa-0000-0000-0000-000000000003",
        objectType="annotation",
        name="a name",
        isLocked=True,
    ),
    feature(
        {"type": "MultiPolygon", "coordinates": [polygon(300)["coordinates"], polygon(310)["coordinates"]]},
        id="aaaaaaaa-0000-0000-0000-000000000004",
        objectType="detection",
        measurements={"Area µm^2": 36.5},
    ),
    feature(
        {"type": "Point", "coordinates": [7, 8, 0]},
        id="aaaaaaaa-0000-0000-0000-000000000005",
        objectType="annotation",
        classification="Stroma",
    ),
    feature(
        {"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [500, 400], [0, 400], [0, 0]]]},
        id="aaaaaaaa-0000-0000-0000-000000000006",
        objectType="annotation",
        classification={"name": "exhaustive", "color": [0, 0, 0]},
    ),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_what_an_export_holds(tmp_path: Path, indent: int | None) -> None:
    cells = read_cells(write(tmp_path / "a.geojson", *EXPORT, indent=indent))
    assert cells.classes == ("Tumor", "Immune cells: CD3", "Stroma")
    assert cells.label.tolist() == [0, 1, 1, 0, -1, -1, 2]
    assert cells.colors == ((200, 0, 0), (160, 90, 160), (128, 128, 128))
    assert cells.kind is not None
    assert cells.kind.tolist() == [0, 1, 1, 2, 1, 0, 1]
    assert cells.xy[[1, 2, 6]].tolist() == [[1.25, 2], [3, 4.5], [7, 8]]
    np.testing.assert_allclose(cells.xy[0], [12, 22.25])
    assert cells.id is not None
    assert [name[-3:].decode() for name in cells.id] == ["9ab", "1#0", "1#1", "002", "003", "004", "005"]
    assert cells.outline is not None
    assert [shape and shape.geom_type for shape in cells.outline] == [
        "Polygon", None, None, "Polygon", "Polygon", "MultiPolygon", None,
    ]  # fmt: skip
    assert cells.nucleus is not None
    assert cells.nucleus[3].area == 0.5
    assert [region.area for region in cells.regions] == [200_000]
    assert cells.measurements["Area µm^2"].tolist()[::5] == [18.25, 36.5]
    assert np.isnan(cells.measurements["Area µm^2"][1])
    assert cells.score is not None
    assert cells.score.tolist() == [0.75, 1, 1, 1, 1, 1, 1]


def test_written_again_qupath_finds_the_same_objects(tmp_path: Path) -> None:
    read_cells(write(tmp_path / "a.geojson", *EXPORT)).write(tmp_path / "b.geojson")
    again = json.loads((tmp_path / "b.geojson").read_bytes())
    assert again["type"] == "FeatureCollection"
    by_id = {each.get("id"): each for each in again["features"]}
    for wanted in EXPORT[:-1]:
        came = by_id[wanted["id"]]
        assert came["type"] == "Feature"
        assert came["geometry"]["type"] == wanted["geometry"]["type"]
        one, other = (shapely.from_geojson(json.dumps(each["geometry"])) for each in (came, wanted))
        assert shapely.hausdorff_distance(one, shapely.force_2d(other)) < 0.01
        assert came["properties"]["objectType"] == wanted["properties"]["objectType"]
        classification = wanted["properties"].get("classification")
        if isinstance(classification, dict):
            name = classification.get("name", "Immune cells: CD3")
            assert came["properties"]["classification"] == {"name": name, "color": classification["color"]}
        assert ("nucleusGeometry" in came) == ("nucleusGeometry" in wanted)
    assert by_id[UUID]["properties"]["measurements"] == {"Area µm^2": 18.25, "Detection probability": 0.75}
    region = by_id[None]
    assert region["properties"] == {"objectType": "annotation", "classification": {"name": "Exhaustive"}}


@pytest.mark.parametrize(
    "different",
    [
        {"label": [0, 1]},
        {"kind": [0, 1]},
        {"name": ["a", None]},
        {"score": [0.25, 0.5]},
        {"measurements": {"a": [1.0, np.nan]}},
        {"nucleus": [None, shapely.box(0, 0, 1, 1)]},
    ],
)
def test_points_are_joined_only_if_nothing_is_lost(tmp_path: Path, different: dict[str, Any]) -> None:
    columns: dict[str, Any] = {"id": ["p#0", "p#1"], "classes": "ab", "measurements": {"a": [np.nan] * 2}}
    for more, count in (({}, 1), (different, 2)):
        cells = Cells([[1, 2], [3, 4]], **columns | more)
        cells.write(tmp_path / "a.geojson")
        assert len(json.loads((tmp_path / "a.geojson").read_bytes())["features"]) == count
        came = read_cells(tmp_path / "a.geojson")
        for name in ("id", "label", *more.keys() - {"measurements"}):
            assert getattr(came, name).tolist() == getattr(cells, name).tolist()


@pytest.mark.parametrize(
    "ids",
    [["p#0", "q#0", "p#1"], ["p#0", "alone", "p#1"], ["p#0", "p#1", "p"], ["p#0#1", "p#0", "q", "p#1"]],
)
def test_ids_are_unique_in_a_file(tmp_path: Path, ids: list[str]) -> None:
    Cells([[k, k] for k in range(len(ids))], id=ids).write(tmp_path / "a.geojson")
    features = json.loads((tmp_path / "a.geojson").read_bytes())["features"]
    written = [feature["id"] for feature in features]
    assert len(set(written)) == len(written)
    assert len(read_cells(tmp_path / "a.geojson")) == len(ids)


def test_detections_and_marks_are_written_as_such(tmp_path: Path) -> None:
    for score, kind in (([0.5], "detection"), (None, "annotation")):
        Cells([[1, 2]], score=score).write(tmp_path / "a.geojson")
        (written,) = json.loads((tmp_path / "a.geojson").read_bytes())["features"]
        assert written["properties"]["objectType"] == kind
        assert written["properties"].get("measurements", {}) == (
            {"Detection probability": 0.5} if score else {}
        )


def test_older_versions(tmp_path: Path) -> None:
    old = [
        feature(
            polygon(),
            id="PathDetectionObject",
            classification={"name": "Tumor", "colorRGB": -3670016},
            measurements=[{"name": "Area", "value": 18.5}, {"name": "Odd", "value": float("nan")}],
        ),
        feature(
            polygon(50), id="PathAnnotationObject", classification={"parentClass": {"name": "A"}, "name": "B"}
        ),
        feature(polygon(90), id=None, object_type="detection"),
        feature(polygon(90), id="PathRootObject"),
    ]
    cells = read_cells(write(tmp_path / "a.geojson", *old))
    assert cells.id is None
    assert cells.kind is not None
    assert cells.kind.tolist() == [0, 1, 0]
    assert cells.classes == ("Tumor", "A: B")
    assert cells.colors is not None
    assert cells.colors[0] == (200, 0, 0)
    assert cells.measurements["Area"][0] == 18.5
    assert np.isnan(cells.measurements["Odd"]).all()


def test_bare_nan_among_measurements(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.geojson", feature(polygon(), measurements={"a": 1.5, "b": float("nan"), "c": -2})
    )
    assert b"NaN" in path.read_bytes()
    cells = read_cells(path)
    assert cells.measurements["a"].tolist() == [1.5]
    assert np.isnan(cells.measurements["b"]).all()
    assert cells.measurements["c"].tolist() == [-2]


@pytest.mark.parametrize("form", ["collection", "array", "single", "geometry", "byte order mark"])
def test_every_form_of_document(tmp_path: Path, form: str) -> None:
    one = feature(polygon(), objectType="detection")
    content: Any = {
        "collection": {"type": "FeatureCollection", "features": [one], "crs": {"x": [{"y": 1}]}},
        "array": [one],
        "single": one | {"properties": {"objectType": "detection", "features": [1]}},
        "geometry": polygon(),
        "byte order mark": {"features": [one]},
    }[form]
    text = json.dumps(content)
    (tmp_path / "a.json").write_text(("\ufeff" if form == "byte order mark" else "") + text, encoding="utf-8")
    cells = read_cells(tmp_path / "a.json")
    assert len(cells) == 1
    assert cells.kind is not None
    assert cells.kind[0] == (1 if form == "geometry" else 0)


def test_children_are_cells_too(tmp_path: Path) -> None:
    child = feature(polygon(20), id="child", objectType="detection", measurements={"a": 7})
    root = feature(None, objectType="root", childObjects=[feature(polygon(), childObjects=[child])])
    cells = read_cells(write(tmp_path / "a.geojson", root))
    assert cells.id is not None
    assert cells.id.tolist() == [UUID.encode(), b"child"]
    np.testing.assert_array_equal(cells.measurements["a"], [np.nan, 7])


def test_what_is_no_cell_is_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.geojson",
        feature({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}),
        feature(polygon(), objectType="tile"),
        feature(polygon(), objectType="tile"),
        feature(polygon(), objectType="tmaCore"),
        feature({"type": "Polygon", "coordinates": []}),
        feature(polygon(), objectType="detection"),
    )
    with pytest.warns(RepairWarning) as caught:
        cells = read_cells(path)
    assert len(cells) == 1
    assert str(caught[0].message) == (
        f"{path}: 1 line left out, 2 tiles left out, 1 TMA core left out, 1 empty geometry left out"
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (feature(None), "no geometry"),
        (feature({"type": "Circle", "coordinates": [1, 2]}), "type 'Circle'"),
        (feature({"type": "Polygon", "coordinates": [1, 2]}), "not those of a Polygon"),
        (feature({"type": "Polygon", "coordinates": [[["1", "2"]]]}), "not those of a Polygon"),
        (feature({"type": "Polygon", "coordinates": [[[1, 2], [3]]]}), "not those of a Polygon"),
        (feature({"type": "Polygon"}), "no 'coordinates'"),
        (feature(polygon(), classification={"name": 3}), "class is called 3"),
        (feature(polygon(), classification=[1]), "list"),
        (feature(polygon(), classification={"name": "half a pair \ud800"}), "surrogate"),
        (feature(polygon(), measurements={"a": "x"}), "measurement 'a' is 'x'"),
        (feature(polygon(), measurements={"a": [1]}), "measurement 'a'"),
        (feature(polygon(), id="x" * 300), "id"),
        (feature(polygon(), id=[1]), "id is a list"),
        ({"no": "feature"}, "no 'geometry'"),
    ],
)
def test_a_feature_that_makes_no_sense_is_named(tmp_path: Path, wrong: Any, reason: str) -> None:
    path = write(tmp_path / "a.geojson", feature(polygon()), wrong)
    with pytest.raises(FormatError, match=reason) as caught:
        read_cells(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "feature 1" in str(caught.value)


@pytest.mark.parametrize("chunk_bytes", [64, 100, 1000, 1 << 20])
def test_chunks_make_no_difference(tmp_path: Path, chunk_bytes: int) -> None:
    path = write(tmp_path / "a.geojson", *EXPORT * 5, indent=1)
    found, firsts = [], []
    with path.open("rb") as file:
        stream = FeatureStream(file, "a", chunk_bytes=chunk_bytes)
        for first, features in stream:
            firsts.append(first)
            found += features
            assert first + len(features) == len(found)
    assert found == EXPORT * 5
    assert stream.frame == {"type": "FeatureCollection", "features": []}


def test_coordinates_are_read_as_python_reads_them(tmp_path: Path) -> None:
    numbers = [0.1, -1e-7, 123456.789012345678, 1.5e8, 987654321.12345678, 1 / 3, 7.0]
    points = [feature({"type": "Point", "coordinates": [x, -x]}, id=k) for k, x in enumerate(numbers)]
    cells = read_cells(write(tmp_path / "a.geojson", *points))
    assert cells.xy[:, 0].tolist() == numbers


def test_members_that_only_look_like_coordinates_or_measurements(tmp_path: Path) -> None:
    odd = {"coordinates": "abc", "measurements": [1, {"coordinates": [5, 6]}, True], "id": 3}
    objects = [
        feature(polygon(k), id=f"a{k}", measurements={"a": k, "b": "NaN"}, metadata=odd) | {"measurements": 7}
        for k in range(3)
    ]
    cells = read_cells(write(tmp_path / "a.geojson", *objects))
    assert cells.id is not None
    assert cells.id.tolist() == [b"a0", b"a1", b"a2"]
    assert cells.xy[:, 0].tolist() == [12, 13, 14]
    assert cells.measurements["a"].tolist() == [0, 1, 2]
    assert np.isnan(cells.measurements["b"]).all()


def test_ids_are_kept_as_they_were_written(tmp_path: Path) -> None:
    ids = ["ü1", 'a"1', "a\\1", "", "007", "no digit", None, "1"]
    points = [feature({"type": "Point", "coordinates": [k, 0]}, id=each) for k, each in enumerate(ids)]
    with pytest.warns(RepairWarning, match="2 missing ids filled in"):
        cells = read_cells(write(tmp_path / "a.geojson", *points))
    wanted = [each or f"row {k}" for k, each in enumerate(ids)]
    assert cells.id is not None
    assert [each.decode() for each in cells.id] == wanted


def test_decimals_can_be_asked_for(tmp_path: Path) -> None:
    write_cells(Cells([[1 / 3, 2 / 3]]), tmp_path / "a.geojson", decimals=6)
    assert read_cells(tmp_path / "a.geojson").xy.tolist() == [[0.333333, 0.666667]]
