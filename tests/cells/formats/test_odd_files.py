"""Files that other programs write, or that hold odd values, each of which once failed."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import shapely
from PIL import Image
from tests.cells.formats.test_qupath import feature, polygon, write

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats import masks, matlab
from sparseshot.cells.formats.options import SCORE, OpenFile
from sparseshot.cli import main
from sparseshot.errors import FormatError, RepairWarning, SparseshotWarning

HALO = """<Annotations>
  <Annotation LineColor="65535" Name="Layer 1" Visible="True"><Regions>
    <Region Type="Rectangle" HasEndcaps="0" NegativeROA="0">
      <Vertices><V X="1" Y="40" /><V X="10" Y="1" /></Vertices><Comments />
    </Region></Regions></Annotation>
  <Annotation LineColor="255" Name="Tumor" Visible="True"><Regions>
    <Region Type="Polygon" HasEndcaps="0" NegativeROA="0">
      <Vertices><V X="0" Y="0" /><V X="8" Y="0" /><V X="8" Y="6" /><V X="0" Y="6" /></Vertices>
    </Region>
    <Region Type="Ellipse" NegativeROA="0"><Vertices><V X="20" Y="20"/><V X="24" Y="30"/></Vertices></Region>
    <Region Type="Ruler" NegativeROA="0"><Vertices><V X="20" Y="20"/><V X="24" Y="30"/></Vertices></Region>
  </Regions></Annotation>
</Annotations>"""


def test_halo_xml(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(HALO)
    with pytest.warns(RepairWarning, match="1 line left out"):
        cells = read_cells(tmp_path / "a.xml")
    assert cells.classes == ("Tumor",)
    assert cells.colors == ((255, 0, 0),)
    assert cells.label.tolist() == [-1, 0, 0]
    assert np.abs(cells.xy - np.array([[5.5, 20.5], [4, 3], [22, 25]])).max() < 1e-9
    assert cells.outline is not None
    assert shapely.area(cells.outline)[:2].tolist() == [9 * 39, 48]


def test_negative_regions_are_holes_of_the_region_around_them(tmp_path: Path) -> None:
    def region(x0: float, x1: float, *, hole: bool = False) -> str:
        corners = "".join(f'<V X="{x}" Y="{y}"/>' for x, y in ((x0, x0), (x1, x0), (x1, x1), (x0, x1)))
        return f'<Region NegativeROA="{int(hole)}"><Vertices>{corners}</Vertices></Region>'

    layers = (
        region(50, 59) + region(0, 9) + region(20, 29) + region(3, 4, hole=True) + region(51, 53, hole=True),
        region(70, 72, hole=True) + region(70, 79) + region(30, 31, hole=True) + region(3, 4, hole=True),
    )
    text = "".join(f"<Annotation><Regions>{each}</Regions></Annotation>" for each in layers)
    (tmp_path / "a.xml").write_text(f"<Annotations>{text}</Annotations>")
    with pytest.warns(RepairWarning, match="2 negative regions"):
        cells = read_cells(tmp_path / "a.xml")
    assert cells.outline is not None
    assert shapely.area(cells.outline).tolist() == [81 - 4, 81 - 1, 81, 81 - 4]


@pytest.mark.parametrize("encoding", ["klingon", "utf-7", "idna"])
def test_xml_of_an_unknown_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><Annotations/>')
    with pytest.raises(FormatError, match="not valid XML"):
        read_cells(path)


@pytest.mark.parametrize("name", ["a.xml", "a.asap.xml"])
def test_control_characters_are_changed_in_xml(tmp_path: Path, name: str) -> None:
    with pytest.warns(SparseshotWarning, match="texts with control characters changed"):
        Cells([[1, 2]], classes=("a\x01b",), id=["\x1b[2J"]).write(tmp_path / name)
    assert read_cells(tmp_path / name).classes == ("a\ufffdb",)


def test_long_names_of_asap_annotations_are_no_ids(tmp_path: Path) -> None:
    dot = '<Annotation Name="{}" Type="Dot"><Coordinates><Coordinate X="1" Y="5"/></Coordinates></Annotation>'
    text = dot.format("n" * 300) + dot.format("m")
    (tmp_path / "a.xml").write_text(f"<ASAP_Annotations><Annotations>{text}</Annotations></ASAP_Annotations>")
    with pytest.warns(RepairWarning, match="1 id longer than 200 bytes"):
        cells = read_cells(tmp_path / "a.xml")
    assert len(cells) == 2
    assert cells.id is None


def coco(path: Path, *annotations: dict[str, Any], **more: Any) -> Path:
    boxes = [{"id": k + 1, "bbox": [1, 2, 3, 4]} | each for k, each in enumerate(annotations)]
    path.write_text(json.dumps({"images": [], "annotations": boxes} | more))
    return path


def test_coco_colours_as_text(tmp_path: Path) -> None:
    categories = [{"id": 7, "name": "a", "color": "#3ab7dd"}, {"id": 8, "name": "b"}]
    cells = read_cells(coco(tmp_path / "a.json", {"category_id": 7}, categories=categories))
    assert cells.colors == ((58, 183, 221), (128, 128, 128))


def test_coco_of_several_images_names_an_option_that_exists(tmp_path: Path) -> None:
    path = coco(tmp_path / "a.json", {"image_id": 1}, {"image_id": 2})
    with pytest.raises(FormatError, match="image="):
        read_cells(path)
    assert len(read_cells(path, image=2)) == 1
    assert main(["convert", str(path), str(tmp_path / "b.csv"), "--image", "2"]) == 0
    assert len(read_cells(tmp_path / "b.csv")) == 1


@pytest.mark.parametrize(
    ("keypoints", "place"),
    [([0, 0, 0, 7, 8, 2, 9, 9, 1], [7, 8]), ([0, 0, 0], [2.5, 4]), ([7, 8], [7, 8]), ([], [2.5, 4])],
)
def test_coco_key_points_that_are_not_labelled(
    tmp_path: Path, keypoints: list[float], place: list[float]
) -> None:
    assert read_cells(coco(tmp_path / "a.json", {"keypoints": keypoints})).xy.tolist() == [place]


def test_coco_in_which_every_mask_is_a_crowd(tmp_path: Path) -> None:
    crowd = {"iscrowd": 1, "segmentation": {"size": [2, 3], "counts": [2, 2, 2]}}
    assert len(read_cells(coco(tmp_path / "a.json", crowd, crowd, {"iscrowd": 0}))) == 3
    path = coco(tmp_path / "a.json", crowd, crowd | {"iscrowd": 0})
    with pytest.warns(RepairWarning, match="1 crowd left out"):
        assert len(read_cells(path)) == 1


@pytest.mark.parametrize(
    ("annotation", "more"),
    [
        ({"score": "high"}, {}),
        ({"score": [1]}, {}),
        ({"score": 10**400}, {}),
        ({"attributes": [1]}, {}),
        ({"attributes": "text"}, {}),
        ({"category_id": [1]}, {}),
        ({"bbox": "text"}, {}),
        ({"segmentation": 5}, {}),
        ({}, {"sparseshot": {"mpp": "small"}}),
        ({}, {"sparseshot": {"mpp": -1}}),
        ({}, {"sparseshot": [1]}),
        ({}, {"categories": [{"id": 1, "name": "a", "color": "blue"}]}),
        ({}, {"categories": [{"id": 1, "name": "a", "color": [1e30, 0, 0]}]}),
    ],
)
def test_coco_values_of_the_wrong_type(tmp_path: Path, annotation: Any, more: Any) -> None:
    path = coco(tmp_path / "a.json", annotation, **more)
    with pytest.raises(FormatError, match=r"a\.json"):
        read_cells(path)


def test_coco_category_beyond_every_integer(tmp_path: Path) -> None:
    assert read_cells(coco(tmp_path / "a.json", {"category_id": 1e30})).classes == ("1e+30",)


def test_an_empty_mask_becomes_an_empty_coco_file(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((20, 30), np.uint8)).save(tmp_path / "a.png")
    read_cells(tmp_path / "a.png").write(tmp_path / "a.coco.json")
    assert len(read_cells(tmp_path / "a.coco.json")) == 0


@pytest.mark.parametrize("dtype", [">u2", ">i4", ">f4"])
def test_a_mask_in_big_endian(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "a.npy", np.array([[0, 1, 300]], dtype))
    cells = read_cells(tmp_path / "a.npy")
    assert cells.id is not None
    assert cells.id.tolist() == [1, 300]


def test_empty_geometries_in_geoparquet(tmp_path: Path) -> None:
    shapes = [shapely.Point(), shapely.Point(1, 2), shapely.Polygon(), None]
    geopandas.GeoDataFrame(geometry=shapes).to_parquet(tmp_path / "a.parquet")
    with pytest.warns(RepairWarning, match="1 cell with coordinates that are not finite"):
        assert read_cells(tmp_path / "a.parquet").xy.tolist() == [[1, 2]]


def test_a_mask_larger_than_pillow_opens(tmp_path: Path) -> None:
    side = 14_000  # 196 million pixels, 178 are the most that Image.open takes
    Image.new("L", (side, side)).save(tmp_path / "a.png")
    with (tmp_path / "a.png").open("rb") as file:
        assert masks._labels(OpenFile(file, "a.png")).shape == (side, side)


@pytest.mark.parametrize("big", [2**63, 2**64, -(2**63) - 1])
def test_ids_beyond_int64(tmp_path: Path, big: int) -> None:
    path = write(tmp_path / "a.geojson", feature(polygon(), id=big), feature(polygon(9), id=1))
    cells = read_cells(path)
    assert cells.id is not None
    assert cells.id.dtype.kind == "S"
    assert cells.id[1] == b"1"
    assert Cells([[0, 0]], id=[big]).id is not None


def test_measurements_that_are_not_finite(tmp_path: Path) -> None:
    measured = {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}
    path = write(tmp_path / "a.geojson", feature(polygon(), measurements=measured))
    read_cells(path).write(tmp_path / "b.geojson")
    for cells in (read_cells(path), read_cells(tmp_path / "b.geojson")):
        columns = {name: column[0] for name, column in cells.measurements.items()}
        assert {name: columns.get(name) for name in "bcd"} == {"b": np.inf, "c": -np.inf, "d": 1.5}
        assert np.isnan(columns.get("a", np.nan))


def score_files(folder: Path, *scores: float) -> Iterator[Path]:
    """Yield files of points with these scores, as other programs write them."""
    as_json = [None if np.isnan(score) else score for score in scores]
    yield write(
        folder / "a.geojson",
        *(feature(polygon(), id=k, measurements={SCORE: score}) for k, score in enumerate(as_json)),
    )
    yield coco(folder / "a.json", *({"score": score} for score in as_json))
    (folder / "a.csv").write_text("x,y,score\n" + "".join(f"1,2,{score}\n" for score in scores))
    yield folder / "a.csv"
    ones = [1.0] * len(scores)
    pq.write_table(pa.table({"x": ones, "y": ones, "score": scores}), folder / "a.parquet")
    yield folder / "a.parquet"


def test_scores_follow_one_rule_in_every_format(tmp_path: Path) -> None:
    for path in score_files(tmp_path, 0.25, np.nan):
        cells = read_cells(path)
        assert cells.score is not None
        assert cells.score.tolist() == [0.25, 1], path
        assert SCORE not in cells.measurements
    for path in score_files(tmp_path, 0.25, 87.5):
        cells = read_cells(path)
        assert cells.score is None, path
        assert cells.measurements[SCORE].tolist() == [0.25, 87.5]
    for scores in ([np.nan, np.nan], []):
        for path in score_files(tmp_path, *scores):
            cells = read_cells(path)
            assert cells.score is None, path
            assert SCORE not in cells.measurements


def test_a_score_of_no_cell(tmp_path: Path) -> None:
    nowhere = {"type": "Point", "coordinates": [1e300, 0]}
    path = write(tmp_path / "a.geojson", feature(nowhere, measurements={SCORE: 0.5}))
    with pytest.warns(RepairWarning, match="not finite"):
        assert len(read_cells(path)) == 0


def test_a_hierarchy_with_many_measured_children(tmp_path: Path) -> None:
    children = [
        feature(polygon(k), id=f"c{k}", objectType="detection", measurements={"a": k, f"m{k % 3}": 1})
        for k in range(1100)
    ]
    root = feature(polygon(), id="root", objectType="annotation", childObjects=children)
    cells = read_cells(write(tmp_path / "a.geojson", root))
    assert len(cells) == 1101
    assert cells.measurements["a"][1:].tolist() == list(range(1100))


@pytest.mark.parametrize("name", ["b.geojson", "b.parquet", "b.csv"])
@pytest.mark.filterwarnings("ignore::sparseshot.errors.SparseshotWarning")
def test_names_and_missing_classes_survive(tmp_path: Path, name: str) -> None:
    marks = [
        feature(polygon(), id="a", objectType="annotation", name="Ask Anna"),
        feature(polygon(9), id="b", objectType="annotation"),
    ]
    read_cells(write(tmp_path / "a.geojson", *marks)).write(tmp_path / name)
    cells = read_cells(tmp_path / name)
    assert cells.name is not None
    assert cells.name.tolist() == ["Ask Anna", None]
    assert cells.label.tolist() == [-1, -1]
    cells.write(tmp_path / "c.geojson")
    for each in json.loads((tmp_path / "c.geojson").read_bytes())["features"]:
        assert "classification" not in each["properties"]


def test_csv_of_outlines_keeps_areas(tmp_path: Path) -> None:
    cells = Cells([[2, 2]], outline=[shapely.box(0, 0, 4, 4)], mpp=0.5)
    with pytest.warns(SparseshotWarning, match="1 outline left out"):
        cells.write(tmp_path / "a.csv")
    came = read_cells(tmp_path / "a.csv")
    assert came.xy.tolist() == [[2, 2]]
    assert {name: column[0] for name, column in came.measurements.items()} == {"area_px2": 16, "area_um2": 4}


@pytest.mark.parametrize("before", ["\n", "\r\n", "\n\n"])
def test_csv_may_begin_with_empty_lines(tmp_path: Path, before: str) -> None:
    (tmp_path / "a.csv").write_text(f"{before}x,y,class\n1,2,tumour\n", newline="")
    cells = read_cells(tmp_path / "a.csv")
    assert (cells.xy.tolist(), cells.classes) == ([[1.0, 2.0]], ("tumour",))


def test_csv_holds_no_formulas(tmp_path: Path) -> None:
    names = ["=1+2", "+x", "-x", "@x", "'=x", "plain"]
    cells = Cells(np.zeros((6, 2)), classes=names, label=range(6), id=names, measurements={"=A1": range(6)})
    cells.write(tmp_path / "a.csv")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    texts = [text.strip('"') for line in lines for text in line.split(",")]
    assert not [text for text in texts if text[:1] in {"=", "+", "-", "@"}]
    came = read_cells(tmp_path / "a.csv")
    assert came.classes == tuple(names)
    assert came.id is not None
    assert [name.decode() for name in came.id] == names
    assert list(came.measurements) == ["=A1"]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("packed", [False, True])
def test_numbers_of_every_type_in_mat_files(tmp_path: Path, dtype: str, packed: bool) -> None:
    numbers = np.array([[0, 3, 3], [7, 0, 100]], dtype)
    names = np.array(["", "Größe", "b" * 40], object)
    content = {"odd": {"a": [1, 2]}, "text": "abc", "inst_map": numbers, "class_names": names}
    scipy.io.savemat(tmp_path / "a.mat", content, do_compression=packed)
    with (tmp_path / "a.mat").open("rb") as file:
        found = matlab._variables(OpenFile(file, "a.mat"))
    np.testing.assert_array_equal(found["inst_map"], numbers)
    assert found["inst_map"].dtype == numbers.dtype
    assert found["class_names"].tolist() == names.tolist()


def test_mat_files_of_other_versions_are_named(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"detection": [[1.5, 2.5]]}, format="4")
    with pytest.raises(FormatError, match="save it with -v7"):
        read_cells(tmp_path / "a.mat")


@pytest.mark.filterwarnings("ignore::sparseshot.errors.RepairWarning")
def test_mat_files_damaged_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(
        path, {"detection": np.arange(20.0).reshape(10, 2), "class_names": np.array(["a"], object)}
    )
    whole = path.read_bytes()
    for place in range(128, len(whole), 3):
        data = bytearray(whole)
        data[place : place + 4] = b"\xff\xff\xff\x7f"
        path.write_bytes(data)
        with contextlib.suppress(FormatError):
            read_cells(path)


@pytest.mark.parametrize(("name", "text"), [("a.geojson", '{"features": []}'), ("a.csv", "x,y\n1,2\n")])
def test_text_in_utf16_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-16")
    with pytest.raises(FormatError, match="UTF-16; save it in UTF-8"):
        read_cells(path)


def test_text_in_latin_1_names_the_cure(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_bytes("x,y,class\n1,2,Gewebestück\n".encode("latin-1"))
    with pytest.raises(FormatError, match="save it in UTF-8"):
        read_cells(tmp_path / "cells.csv")


def test_labels_of_instances_are_not_classes(tmp_path: Path) -> None:
    rows = [f"{k},{k},{k + 1}" for k in range(2000)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,label", *rows]))
    with pytest.warns(RepairWarning, match="2,000 classes that are a different number in each row taken for"):
        cells = read_cells(tmp_path / "a.csv")
    assert cells.classes == ("cell",)
    assert cells.id is not None
    assert cells.id.tolist() == list(range(1, 2001))
    (tmp_path / "b.csv").write_text("\n".join(["x,y,label", *(f"{row}x" for row in rows)]))
    with pytest.raises(FormatError, match=r"has 2,000 classes, as '1x' and '2000x'; .* Are they ids"):
        read_cells(tmp_path / "b.csv")
