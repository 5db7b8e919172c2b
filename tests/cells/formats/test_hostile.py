"""Whatever comes is a table with a counted repair, or an error that names the file; nothing else."""

import contextlib
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import shapely
from PIL import Image
from tests.cells.formats.test_qupath import feature, polygon, write

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cli import main
from sparseshot.errors import FormatError, InputError, OutputError, RepairWarning, SparseshotError

MILLION = 10**6


def whole_table() -> Cells:
    return Cells(
        np.array([[4, 4], [7.5, 8.25], [25, 25]]),
        classes=("a", "b"),
        label=[0, 1, -1],
        score=[0.5, 0.25, 1],
        outline=[shapely.box(0, 0, 9, 9), None, shapely.box(20, 20, 30, 30)],
        id=["x", "y", "z"],
        measurements={"area": [1, 2.5, np.nan]},
    )


def test_json_cut_off_anywhere(tmp_path: Path) -> None:
    write_cells(whole_table(), tmp_path / "whole.geojson")
    text = (tmp_path / "whole.geojson").read_bytes().rstrip()
    path = tmp_path / "cut.geojson"
    for end in range(0, len(text), 7):
        path.write_bytes(text[:end])
        with pytest.raises(FormatError, match=r"cut\.geojson: "):
            read_cells(path)
    path.write_bytes(text[:-30])
    with pytest.raises(FormatError, match=r"ends in the middle of feature 2: the file is cut off"):
        read_cells(path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * MILLION,
        '{"a":' * MILLION,
        '{"features":[' + '{"a":' * MILLION,
        '{"features":[{"geometry":{"type":"Polygon","coordinates":' + "[" * MILLION,
        '{"features":[{"type":"Feature","properties":{"x":' + "[" * 5000 + "]" * 5000 + "}}]}",
        '{"images":' + "[" * MILLION,
        "<Annotations>" + "<a>" * 10_000,
        "<ASAP_Annotations>" + "<Annotations>" * 10_000,
    ],
    ids=["arrays", "objects", "feature", "coordinates", "closed", "coco", "aperio", "asap"],
)
def test_a_million_levels_deep(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deep.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"deep\.json: "):
        read_cells(path)


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("entities", [ENTITIES, EXTERNAL, '<!DOCTYPE x SYSTEM "http://localhost/x.dtd">'])
@pytest.mark.parametrize("root", ["Annotations", "ASAP_Annotations"])
def test_xml_with_entities_is_refused(tmp_path: Path, entities: str, root: str) -> None:
    path = tmp_path / "bomb.xml"
    path.write_text(f'<?xml version="1.0"?>{entities}<{root} Name="&a;">&b;</{root}>')
    with pytest.raises(FormatError, match=r"document type or entities|not valid XML|is XML of"):
        read_cells(path)


def packed(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseshot.cells.formats.options.FREE_BYTES", 1 << 20)
    bomb = b"[" + b" " * (2 << 20)
    path = packed(tmp_path / "bomb.zip", **{"a.json": bomb})
    assert path.stat().st_size < 4000
    with pytest.raises(FormatError, match=r"bomb\.zip: unpacks to more than 250 times its size"):
        read_cells(path)
    many = packed(tmp_path / "many.zip", **{f"{i}.json": b"[]" + b" " * (600 << 10) for i in range(4)})
    with pytest.raises(FormatError, match="unpacks to more than"):
        read_cells(many)
    deflate = zlib.compressobj(9, wbits=31)
    (tmp_path / "bomb.json.gz").write_bytes(deflate.compress(bomb) + deflate.flush())
    with pytest.raises(FormatError, match="unpacks to more than"):
        read_cells(tmp_path / "bomb.json.gz")


@pytest.mark.parametrize("name", ["../a.json", "/etc/a.json", "b/../../a.json", "..\\a.json", "C:\\a.json"])
def test_names_that_point_outside_of_an_archive(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "a.zip", **{name: b"[]"})
    with pytest.raises(FormatError, match="points outside"):
        read_cells(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.zip"]


def test_an_archive_of_several(tmp_path: Path) -> None:
    one = json.dumps([feature(polygon(), id="one")]).encode()
    two = json.dumps(feature(polygon(50), id="two")).encode()
    junk = {"__MACOSX/._a.json": b"\0", ".hidden.json": b"x", "readme.txt": b"hello", "folder/": b""}
    path = packed(tmp_path / "a.zip", **{"a.json": one, "folder/b.geojson": two}, **junk)
    assert len(read_cells(path)) == 2
    with pytest.raises(FormatError, match=r"holds no \.geojson"):
        read_cells(packed(tmp_path / "b.zip", **junk))
    with pytest.raises(FormatError, match=r"c\.zip/bad\.json: feature 0"):
        read_cells(packed(tmp_path / "c.zip", **{"bad.json": b"[{]"}))
    measured = b'{"sparseshot": {"mpp": 0.5}, "features": []}'
    path = packed(tmp_path / "d.zip", **{"a.json": one, "b.json": measured})
    with pytest.raises(FormatError, match=r"d\.zip: .*read them with mpp"):
        read_cells(path)
    assert read_cells(path, mpp=0.25).mpp == 0.25


def test_broken_archives(tmp_path: Path) -> None:
    write_cells(whole_table(), tmp_path / "a.geojson.gz")
    whole = (tmp_path / "a.geojson.gz").read_bytes()
    write_cells(whole_table(), tmp_path / "a.zip")
    for name, content in {
        "cut.json.gz": whole[:-20],
        "flipped.json.gz": whole[:100] + b"\xff\xff" + whole[102:],
        "cut.zip": (tmp_path / "a.zip").read_bytes()[:-40],
        "nothing.zip": b"PK\x05\x06" + b"\0" * 18,
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name):
            read_cells(tmp_path / name)


def json_points(path: Path, texts: list[str]) -> None:
    features = ",".join(
        f'{{"type":"Feature","id":{k},"geometry":{{"type":"Point","coordinates":[{text},5]}}}}'
        for k, text in enumerate(texts)
    )
    path.write_text(f'{{"features":[{features}]}}')


def csv_points(path: Path, texts: list[str]) -> None:
    path.write_text("x,y\n" + "".join(f"{text},5\n" for text in texts))


def xml_points(path: Path, texts: list[str]) -> None:
    regions = "".join(f'<Region><Vertices><Vertex X="{x}" Y="5"/></Vertices></Region>' for x in texts)
    path.write_text(f"<Annotations><Annotation><Regions>{regions}</Regions></Annotation></Annotations>")


def asap_points(path: Path, texts: list[str]) -> None:
    dots = "".join(
        f'<Annotation Name="{k}" Type="Dot"><Coordinates><Coordinate X="{x}" Y="5"/></Coordinates>'
        "</Annotation>"
        for k, x in enumerate(texts)
    )
    path.write_text(f"<ASAP_Annotations><Annotations>{dots}</Annotations></ASAP_Annotations>")


def coco_points(path: Path, texts: list[str]) -> None:
    points = ",".join(f'{{"image_id":1,"keypoints":[{text},5,2]}}' for text in texts)
    path.write_text(f'{{"annotations":[{points}]}}')


def mat_points(path: Path, texts: list[str]) -> None:
    scipy.io.savemat(path, {"detection": [[float(text), 5] for text in texts]})


def parquet_points(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"x": [float(text) for text in texts], "y": [5.0] * len(texts)}), path)


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "a.geojson": json_points,
    "a.csv": csv_points,
    "a.xml": xml_points,
    "a.asap.xml": asap_points,
    "a.coco.json": coco_points,
    "a_detection.mat": mat_points,
    "a.parquet": parquet_points,
}


@pytest.mark.parametrize("name", WRITERS)
def test_coordinates_that_are_not_finite(tmp_path: Path, name: str) -> None:
    odd = ["1e999", "-1e999", "1e200", "NaN"]
    if name == "a.geojson":
        odd += ["Infinity", "-Infinity", "null"]
    WRITERS[name](tmp_path / name, ["1", *odd, "2"])
    with pytest.warns(RepairWarning, match=f"{len(odd)} cells with coordinates that are not finite left out"):
        cells = read_cells(tmp_path / name)
    assert len(cells) == 2
    assert np.isfinite(cells.xy).all()


def test_outlines_that_are_not_finite_self_crossing_or_empty(tmp_path: Path) -> None:
    def outline(*corners: list[Any]) -> dict[str, Any]:
        return {"type": "Polygon", "coordinates": [list(corners)]}

    bow = outline([0, 0], [4, 4], [4, 0], [0, 4], [0, 0])
    spike = outline([10, 0], [14, 0], [14, 4], [20, 4], [14, 4], [10, 4], [10, 0])
    shapes = [
        bow,
        spike,
        outline([0, 0], [float("nan"), 1], [2, 2], [0, 0]),
        outline([0, 0], [1, 1], [2, 2], [0, 0]),
        outline([0, 0], [1, 1]),
        outline(),
        {"type": "MultiPolygon", "coordinates": [bow["coordinates"], [[[9, 9], [8, 9], [9, 8], [9, 9]]]]},
        polygon(),
    ]
    path = write(tmp_path / "a.geojson", *(feature(shape, id=k) for k, shape in enumerate(shapes)))
    with pytest.warns(RepairWarning) as caught:
        cells = read_cells(path)
    assert set(str(caught[0].message).removeprefix(f"{path}: ").split(", ")) == {
        "1 cell with coordinates that are not finite left out",
        "2 outlines without area left out",
        "3 self-crossing outlines repaired",
        "1 empty geometry left out",
    }
    assert cells.id is not None
    assert cells.id.tolist() == [0, 1, 6, 7]
    assert cells.outline is not None
    assert shapely.is_valid(cells.outline).all()
    assert shapely.area(cells.outline).tolist() == [4, 16, 8.5, 18]
    assert cells.xy[1].tolist() == [12, 2]


def test_ids_that_repeat(tmp_path: Path) -> None:
    for ids, wanted in (
        (["a", "a", "b", "a", "a~2"], [b"a", b"a~3", b"b", b"a~4", b"a~2"]),
        ([5, 5, 7], [5, 8, 7]),
    ):
        path = write(
            tmp_path / "a.geojson", *(feature(polygon(10 * k), id=each) for k, each in enumerate(ids))
        )
        with pytest.warns(RepairWarning, match=f"{len(ids) - len(set(ids))} repeated ids? made unique"):
            cells = read_cells(path)
        assert cells.id is not None
        assert cells.id.tolist() == wanted


def test_some_ids_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.geojson", feature(polygon(), id=5), feature(polygon(9), id=None))
    with pytest.warns(RepairWarning, match="1 missing id filled in"):
        cells = read_cells(path)
    assert cells.id is not None
    assert cells.id.tolist() == [b"5", b"row 1"]


def test_classes_that_were_not_expected(tmp_path: Path) -> None:
    whole_table().write(tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="has 1 cell of 'b'; the classes asked for are a, c"):
        read_cells(tmp_path / "a.parquet", classes=["a", "c"])
    cells = read_cells(tmp_path / "a.parquet", classes=["b", "new", "a"], unclassified="new")
    assert cells.classes == ("b", "new", "a")
    assert cells.label.tolist() == [2, 0, 1]


def test_cells_outside_of_the_slide_and_swapped_axes(tmp_path: Path) -> None:
    Cells([[10, 90], [20, 5], [300, 5]]).write(tmp_path / "a.csv")
    with pytest.warns(RepairWarning, match="1 cell outside of the 100 × 95 slide left out"):
        assert len(read_cells(tmp_path / "a.csv", size_px=(100, 95))) == 2
    Cells([[10, 90], [20, 5], [30, 80]]).write(tmp_path / "b.csv")
    with pytest.raises(
        FormatError, match="2 of 3 cells lie outside of the 100 × 50 slide, but none if x and y"
    ):
        read_cells(tmp_path / "b.csv", size_px=(100, 50))


def test_a_mask_of_another_size_than_its_image(tmp_path: Path) -> None:
    Image.fromarray(np.eye(20, 30, dtype=np.uint8)).save(tmp_path / "mask.png")
    with pytest.raises(FormatError, match="is 30 × 20, its image 20 × 30"):
        read_cells(tmp_path / "mask.png", size_px=(20, 30))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 3), np.uint8),
        np.full((4, 4), -1),
        np.full((4, 4), 0.5),
        np.full((4, 4), np.nan),
        np.full((4, 4), 2**63, np.uint64),
        np.zeros((4, 4), "S3"),
        np.zeros(4, int),
    ],
    ids=str,
)
def test_arrays_that_are_no_label_masks(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FormatError, match=r"a\.npy"):
        read_cells(tmp_path / "a.npy")


def test_pickles_in_arrays_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(FormatError, match=r"allow_pickle|pickle"):
        read_cells(tmp_path / "a.npy")


def tiff_header(width: int, height: int) -> bytes:
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 64}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + struct.pack("<I", 0)


def test_masks_that_claim_to_be_huge(tmp_path: Path) -> None:
    header = io.BytesIO()
    content = {"descr": "<u4", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, content)
    (tmp_path / "a.npy").write_bytes(header.getvalue())
    (tmp_path / "a.tif").write_bytes(tiff_header(1 << 30, 1 << 30))
    for name in ("a.npy", "a.tif"):
        with pytest.raises(FormatError, match="it claims"):
            read_cells(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b"  \n", "is empty"),
        ("a.json", b"[1, 2]", "feature 0 is '1, 2"),
        ("a.json", b'[{"type":"Feature"} {"type"', "feature"),
        ("a.json", b'{"features":[]} trailing', "not valid JSON"),
        ("a.json", b"\xff\xfe{\x00", "UTF-16"),
        ("a.dat", b"hello", "no known format"),
        ("a.csv", b"a,b\n1,2\n", "x and y are needed"),
        ("a.csv", b"1,2,3,4\n", "no header"),
        ("a.csv", b"x,y\n1,two\n", "two"),
        ("a.csv", b"x,x,y\n1,2,3\n", "more than one column for x"),
        ("a.csv", b"x,y\n1\n", "columns"),
        ("a.csv", b"x_um,y_um\n1,2\n", "give mpp"),
        ("a.xml", b"<Other/>", "is XML of 'Other'"),
        ("a.xml", b"<Annotations><Annotation>", "not valid XML"),
        ("a.xml", b'<Annotations><Annotation Id="7"><Region Id="3"><Vertices><Vertex X="1"/></Vertices>'
         b"</Region></Annotation></Annotations>", "region 3 of layer 7 has a Vertex without 'Y'"),
        ("a.xml", b'<ASAP_Annotations><Annotation Name="n" Type="Star"/></ASAP_Annotations>', "is a Star"),
        ("a.png", b"\x89PNG\r\n\x1a\n123", "cannot be read as a mask"),
        ("a.tif", b"II*\0\xff\xff\xff\xff", "holds 0 images"),
        ("a.parquet", b"PAR1PAR1", "not readable GeoParquet"),
        ("a.mat", b"MATLAB 5.0 MAT-file" + b" " * 200, "mat"),
        ("a.mat", b"MATLAB 7.3 MAT-file" + b" " * 110 + b"\x00\x02IM" + b"\0" * 200, "7.3|mat"),
        ("a.json", b'{"images":[],"annotations":[{"bbox":[1,2]}]}', "annotation 0 cannot be understood"),
        ("a.json", b'{"images":[],"categories":[{"id":1,"name":"a"}],"annotations":[{"id":9,"category_id":2,'
         b'"bbox":[1,2,3,4]}]}', "annotation 9 .* category 2"),
        ("a.json", b'{"images":[],"annotations":[{"segmentation":{"size":[9,9],"counts":[1]}}]}', "add up"),
        ("a.json", b'{"images":[],"annotations":[{"segmentation":{"size":[99999,99999],"counts":[1]}}]}',
         "pixels"),
        ("a.json", b'{"annotations":[{"image_id":1,"bbox":[1,2,3,4]},{"image_id":2,"bbox":[1,2,3,4]}]}',
         "2 images"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError, match=reason) as caught:
        read_cells(path)
    assert str(caught.value).startswith(str(path))


FORMATS = [
    "a.geojson", "a.geojson.gz", "a.zip", "a.parquet", "a.coco.json", "a.xml", "a.asap.xml",
    "a.csv", "a.png", "a.tif", "a.npy",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::sparseshot.errors.SparseshotWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_files_damaged_at_random(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_cells(whole_table(), path)
    whole = path.read_bytes()
    dice = random.Random(name)
    tokens = [
        b"[",
        b"{",
        b'"',
        b",",
        b"9" * 20,
        b"-",
        b"null",
        b"\\",
        b"}",
        b"]",
        b"<",
        b"\0\0\0\0",
        b"e999",
        b"\xff",
    ]
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(dice.choice([1, 1, 2, 5])):
            place = dice.randrange(len(data))
            change = dice.randrange(3)
            if change == 0:
                data[place] ^= 1 << dice.randrange(8)
            elif change == 1 and len(data) > 40:
                del data[place : place + dice.randrange(1, 30)]
            else:
                data[place:place] = dice.choice(tokens)
        path.write_bytes(data)
        with contextlib.suppress(SparseshotError):
            assert np.isfinite(read_cells(path).xy).all()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    far = Cells([[5, 5]], id=[70_000], outline=[shapely.box(0, 0, 9, 9)])
    with pytest.raises(InputError, match="PNG holds at most 65,535"):
        far.write(path)
    with pytest.raises(InputError, match="coordinates reach 1e"):
        Cells([[1e300, 0]]).write(tmp_path / "b.geojson")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


def test_names_by_which_nothing_is_written(tmp_path: Path) -> None:
    cells = Cells([[0, 0]])
    for name, reason in (
        ("a.doc", "known are"),
        ("a.parquet.gz", "packed by itself"),
        ("a.csv.zip", "only QuPath"),
    ):
        with pytest.raises(InputError, match=reason):
            cells.write(tmp_path / name)
    with pytest.raises(InputError, match="there is no format 'word'"):
        write_cells(cells, tmp_path / "a.doc", format="word")
    with pytest.raises(OutputError, match="create it first"):
        cells.write(tmp_path / "missing" / "a.csv")
    assert not list(tmp_path.iterdir())


def test_the_command_line_shows_one_line_not_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * MILLION)
    assert main(["cells", str(path)]) == 1
    assert main(["convert", str(path), str(tmp_path / "b.parquet")]) == 1
    assert main(["cells", str(tmp_path / "missing.json")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert [each.name for each in tmp_path.iterdir()] == ["deep.json"]
