import errno
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import shapely
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image
from tests.studio.small_project import MPP, made_result, small_slide

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.studio import result_routes
from sparseshot.studio.api import make_api
from sparseshot.studio.guard import Guard
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio

HERE = "http://127.0.0.1:8686"
BOX = [[0, 0], [200, 0], [200, 200], [0, 200]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NDArray[np.float64]]:
    folder = tmp_path_factory.mktemp("slide")
    slide, centres = small_slide(folder)
    score = np.linspace(0.2, 0.99, len(centres)).astype(np.float32)
    cells = Cells(centres, classes=("T", "B"), label=np.arange(len(centres)) % 2, score=score, mpp=MPP)
    made_result(folder / "found", slide, cells)
    return slide, centres


@pytest.fixture
def studio(place: tuple[Path, NDArray[np.float64]], tmp_path: Path) -> Studio:
    slide, _ = place
    return Studio.of(Project.open([slide, slide.parent / "found"], folder=tmp_path / "project", mpp=MPP))


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    app = Guard(make_api(studio), host="127.0.0.1", port=8686)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as opened:
        yield opened


def click(client: TestClient, key: str, x: float, y: float, name: str = "cell", *, since: str = "") -> Any:
    change = {"key": key, "add": [{"class": name, "at": [x, y]}]}
    return client.post(f"/slides/1/marks?since={since}", json=[change]).json()


def test_tiles_are_the_pixels_of_the_slide(client: TestClient, place: tuple[Path, Any]) -> None:
    tile = Image.open(io.BytesIO(client.get("/slides/1/tiles/0/1/1.jpg").content))
    whole = np.asarray(Image.open(place[0]), np.int16)[256:512, 256:512]
    assert tile.size == (256, 256)
    assert np.abs(np.asarray(tile, np.int16) - whole).mean() < 4
    coarse = Image.open(io.BytesIO(client.get("/slides/1/tiles/2/0/0.jpg").content))
    halves = np.asarray(coarse, np.int16)
    assert (halves[:, 254:] > 250).all()  # white right of the slide, whose 1000 pixels are 250 here
    assert client.get("/slides/1/tiles/0/9/0.jpg").status_code == 404
    assert client.get("/slides/1/thumbnail.jpg").content[:2] == b"\xff\xd8"


def test_marks_come_and_go(client: TestClient) -> None:
    first = click(client, "aaaaaaaa", 10, 20)
    assert first["all"] == [{"id": "aaaaaaaa:0", "class": "cell", "at": [10, 20]}]
    second = click(client, "bbbbbbbb", 30, 40, "T", since=first["version"])
    assert second["changes"] == [
        {"removed": [], "added": [{"id": "bbbbbbbb:0", "class": "T", "at": [30, 40]}]}
    ]
    assert list(second["classes"]) == ["cell", "T", "not a cell"]
    undone = client.post("/slides/1/marks", json=[{"key": "cccccccc", "undo": True}]).json()
    assert [item["id"] for item in undone["all"]] == ["aaaaaaaa:0"]
    again = client.get(f"/slides/1/state?since={undone['version']}").json()
    assert again["changes"] == []
    gone = client.post("/slides/1/marks", json=[{"key": "dddddddd", "remove": ["aaaaaaaa:0"]}]).json()
    assert gone["all"] == []


def test_marks_of_another_project_are_refused(client: TestClient, studio: Studio) -> None:
    change = [{"key": "aaaaaaaa", "add": [{"class": "cell", "at": [10, 20]}]}]
    assert client.post("/slides/1/marks?project=0123456789abcdef", json=change).status_code == 409
    assert studio.book.items("1") == []
    assert client.post(f"/slides/1/marks?project={studio.project.identity}", json=change).status_code == 200


def test_marks_become_cells_with_outlines_and_regions(client: TestClient, studio: Studio) -> None:
    ring = [[10, 10], [30, 10], [30, 30]]
    items = [{"class": "T", "outline": ring}, {"region": ring}, {"class": "not a cell", "at": [50, 60]}]
    assert client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": items}]).status_code == 200
    cells = studio.book.cells("1", mpp=0.5)
    assert cells.counts() == {"cell": 0, "T": 1, "not a cell": 1}
    assert cells.outline is not None
    assert cells.outline[0].area == 200
    assert len(cells.regions) == 1


@pytest.mark.parametrize(
    "item",
    [
        {"class": "cell", "at": [-1, 5]},
        {"class": "cell", "at": [1e9, 5]},
        {"class": "cell", "at": [None, 5]},
        {"class": "cell", "at": ["../", 5]},
        {"class": "cell", "at": [1, 2, 3]},
        {"class": "cell"},
        {"at": [1, 2]},
        {"class": "x" * 101, "at": [1, 2]},
        {"class": "cell", "outline": [[0, 0], [9, 9], [9, 0], [0, 9]]},
        {"region": [[0, 0], [1, 1]]},
        {"class": "cell", "at": [1, 2], "id": "mine"},
        {"class": "cell", "outline": [[990, 0], [1020, 0], [990, 30]]},
        {"region": [[-5, 0], [30, 0], [30, 30]]},
        {"class": "T\x1b[2J", "at": [1, 2]},
        {"class": "T\n", "at": [1, 2]},
    ],
)
def test_a_mark_that_is_none_is_refused_and_nothing_is_kept(client: TestClient, item: Any) -> None:
    answer = client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": [item]}])
    assert answer.status_code == 422
    assert client.get("/slides/1/state").json()["all"] == []


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"class": "cell", "outline": [[0, 0], [9, 9], [9, 0], [0, 9]]}, "the outline crosses itself"),
        ({"class": "cell", "at": [1]}, "Field required (body.0.add.0.at.1)"),
        ({"class": "cell", "at": [99999, 5]}, "lies outside the slide"),
        ({"region": [[0, 0], [99, 0], [99, 900]]}, "the region at (99, 900) lies outside the slide"),
    ],
)
def test_a_refused_mark_is_refused_in_words(client: TestClient, item: Any, reason: str) -> None:
    answer = client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": [item]}])
    assert answer.status_code == 422
    assert reason in answer.json()["error"]


def test_an_area_without_sense_holds_no_cells(client: TestClient) -> None:
    for area in ("nan,nan,nan,nan", "1e300,0,inf,1", "500,500,-5,-5"):
        assert sum(client.get(f"/slides/1/found/f0/cells?area={area}").json()["in_view"].values()) == 0


def test_overlays_show_found_cells(client: TestClient, place: tuple[Path, NDArray[np.float64]]) -> None:
    def alpha(path: str) -> NDArray[np.uint8]:
        answer = client.get(f"/slides/1/found/f0/{path}")
        assert answer.headers["content-type"] == "image/png"
        return np.asarray(Image.open(io.BytesIO(answer.content)))[..., 3]

    x, y = place[1][-1]
    column, row = int(x) // 256, int(y) // 256
    tile = alpha(f"0/{column}/{row}.png?threshold=0.9")
    assert tile[int(y) % 256, int(x) % 256] == 0  # the nucleus is seen as it is
    assert (tile > 0).any()
    assert (tile > 0).mean() < 0.5
    assert alpha(f"0/{column}/{row}.png?threshold=1").max() == 0
    everything = alpha("2/0/0.png?threshold=0")
    assert (everything > 0).sum() > len(place[1])
    assert alpha("2/0/0.png?threshold=0&paint=density").max() > 50
    assert alpha("2/0/0.png?threshold=0&paint=score").max() > 50


def test_counts_and_vectors_follow_the_threshold(
    client: TestClient, place: tuple[Path, NDArray[np.float64]]
) -> None:
    centres, score = place[1], np.linspace(0.2, 0.99, len(place[1]))
    wanted = (centres < (500, 300)).all(axis=1) & (score >= 0.5)
    counted = client.get("/slides/1/found/f0/cells?area=0,0,500,300&threshold=0.5").json()
    assert sum(counted["in_view"].values()) == wanted.sum()
    assert sum(counted["in_slide"].values()) == (score >= 0.5).sum()
    assert "cells" not in counted
    answer = client.get("/slides/1/found/f0/cells?area=0,0,500,300&threshold=0.5&vectors=true").json()
    assert len(answer["cells"]) == wanted.sum()
    assert sorted(each[0] for each in answer["cells"]) == pytest.approx(sorted(centres[wanted, 0]), abs=0.06)


def test_a_box_of_found_cells_is_judged_once(client: TestClient, place: tuple[Path, Any]) -> None:
    x, y = place[1][0]
    click(client, "mymark00", float(x) + 1, float(y))
    verdict = {"key": "aaaaaaaa", "result": "f0", "area": BOX, "threshold": 0, "accept": False}
    inside = int((place[1] < 200).all(axis=1).sum())
    assert client.post("/slides/1/judge", json=verdict).json() == {"marked": inside - 1}
    assert client.post("/slides/1/judge", json=verdict | {"key": "bbbbbbbb"}).json() == {"marked": 0}
    assert client.post("/slides/1/judge", json=verdict | {"area": [[0, 0], [1, 1]]}).status_code == 422


@pytest.mark.parametrize("ending", ["geojson", "parquet", "csv"])
def test_marks_and_found_cells_leave_and_return(
    client: TestClient, place: tuple[Path, Any], tmp_path: Path, ending: str
) -> None:
    click(client, "aaaaaaaa", 10, 20, "T")
    click(client, "bbbbbbbb", 30, 40, "not a cell")
    file = tmp_path / f"marks.{ending}"
    file.write_bytes(client.get(f"/slides/1/export/marks.{ending}").content)
    assert read_cells(file).counts()["T"] == 1
    client.post("/slides/1/marks", json=[{"key": "cccccccc", "remove": ["aaaaaaaa:0", "bbbbbbbb:0"]}])
    with file.open("rb") as content:
        answer = client.post(
            "/slides/1/import?key=dddddddd", files={"file": (f"../../evil.{ending}", content)}
        )
    assert answer.json()["marks"] == 2
    items = client.get("/slides/1/state").json()["all"]
    assert sorted((item["class"], *item["at"]) for item in items) == [("T", 10, 20), ("not a cell", 30, 40)]
    found = tmp_path / f"found.{ending}"
    found.write_bytes(client.get(f"/slides/1/export/f0.{ending}?threshold=0.5").content)
    score = np.linspace(0.2, 0.99, len(place[1]))
    assert len(read_cells(found)) == (score >= 0.5).sum() + 1  # and the mark


@pytest.mark.parametrize("what", ["marks", "f0"])
def test_an_export_that_fails_is_an_error_and_leaves_no_file(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def full(cells: Cells, path: Path) -> NoReturn:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = set(tmp_path.iterdir())
    assert client.get(f"/slides/1/export/{what}.csv").status_code == 200
    assert set(tmp_path.iterdir()) == kept
    monkeypatch.setattr(result_routes, "write_cells", full)
    answer = client.get(f"/slides/1/export/{what}.csv")
    assert answer.status_code == 500
    assert answer.json() == {"error": "No space left on device"}
    assert set(tmp_path.iterdir()) == kept


def test_holes_of_imported_regions_stay_out(client: TestClient, studio: Studio, tmp_path: Path) -> None:
    holes = [shapely.box(x, y, x + 11, y + 7.5) for x in (20.005, 35, 80) for y in (20, 30, 70)]
    region = shapely.box(10, 10, 100, 100).difference(shapely.union_all(holes))
    other = shapely.box(200, 200, 210, 210)
    file = tmp_path / "regions.geojson"
    write_cells(Cells([[15, 15]], regions=[region.union(shapely.box(120, 10, 130, 20)), other]), file)
    with file.open("rb") as content:
        client.post("/slides/1/import?key=dddddddd", files={"file": ("regions.geojson", content)})
    kept = studio.book.cells("1").regions
    assert all(each.is_valid and not each.interiors for each in kept)
    covered = shapely.union_all(kept)
    wanted = shapely.union_all([region, shapely.box(120, 10, 130, 20), other])
    assert covered.symmetric_difference(wanted).area < 1
    assert sum(each.area for each in kept) == pytest.approx(covered.area, abs=1)
    assert not covered.intersects(shapely.Point(25, 24))


def test_imported_classes_keep_their_colours(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "qupath.geojson"
    write_cells(Cells([[5, 5]], classes=("Tumor",), label=[0], colors=[(200, 0, 0)]), file)
    with file.open("rb") as content:
        client.post("/slides/1/import?key=dddddddd", files={"file": ("qupath.geojson", content)})
    assert client.get("/slides/1/state").json()["classes"]["Tumor"] == "#c80000"
    for color in ("#112233", "#445566", "#112233"):
        assert client.post("/classes", json={"name": "Tumor", "color": color}).json()["Tumor"] == color


def test_imported_marks_in_micrometres(client: TestClient) -> None:
    content = f"x_um,y_um\n{10 * MPP},{20 * MPP}\n".encode()
    client.post("/slides/1/import?key=dddddddd", files={"file": ("a.csv", content)})
    assert [item["at"] for item in client.get("/slides/1/state").json()["all"]] == [[10, 20]]


def imported(client: TestClient, content: bytes, name: str = "a.csv", key: str = "dddddddd") -> Any:
    return client.post(f"/slides/1/import?key={key}", files={"file": (name, content)})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.geojson", b"{]", "not"),
        ("a.parquet", b"PAR1 what?", ""),
        (
            "a.csv",
            b"x,y,label\n" + b"".join(b"%d,5,id%d\n" % (i, i) for i in range(60)),
            "60 classes, such as",
        ),
        ("a.csv", b"x,y,label\n5,5,T\x1b[2J\n", "rename it"),
        ("a.csv", b"x,y\n5000,5\n6000,6\n", "2 of 2 marks lie outside small.png"),
    ],
)
def test_files_that_are_no_marks_are_refused_in_words(
    client: TestClient, name: str, content: bytes, reason: str
) -> None:
    answer = imported(client, content, name)
    assert answer.status_code == 422
    assert reason in answer.json()["error"]
    assert client.get("/slides/1/state").json()["all"] == []


def test_marks_that_come_again_are_not_doubled(client: TestClient) -> None:
    ring = [[10, 10], [30, 10], [30, 30]]
    items = [{"class": "T", "outline": ring}, {"region": ring}, {"class": "not a cell", "at": [50, 60]}]
    client.post("/slides/1/marks", json=[{"key": "aaaaaaaa", "add": items}])
    click(client, "bbbbbbbb", 80, 90)
    exported = client.get("/slides/1/export/marks.geojson").content
    answer = imported(client, exported, "a.geojson").json()
    assert (answer["marks"], answer["regions"]) == (0, 0)
    assert "3 of them are there already" in answer["said"]
    assert len(client.get("/slides/1/state").json()["all"]) == 4


def test_marks_on_glass_are_told_on_import(tmp_path: Path) -> None:
    pixels = np.full((3000, 3000, 3), 245, np.uint8)
    pixels[:1500, :1500] = (200, 120, 180)
    Image.fromarray(pixels).save(tmp_path / "half.png")
    studio = Studio.of(Project.open([tmp_path / "half.png"], folder=tmp_path / "p", mpp=MPP))
    xy = [(x, y) for x in range(100, 1400, 200) for y in range(100, 1400, 200)]
    with TestClient(make_api(studio), base_url=HERE, raise_server_exceptions=False) as other:
        said = imported(other, csv_of([*xy, *[(2500, 2500 + i) for i in range(20)]])).json()["said"]
        assert any("on glass of half.png" in each for each in said)
        doubled = imported(other, csv_of([(2 * x, 2 * y) for x, y in xy]), key="eeeeeeee")
        assert doubled.status_code == 422
        assert "an image twice as large" in doubled.json()["error"]


def csv_of(xy: list[tuple[int, int]]) -> bytes:
    return b"x,y\n" + b"".join(b"%d,%d\n" % each for each in xy)


def test_a_slide_that_disappears_is_reported(client: TestClient, tmp_path: Path) -> None:
    slide, _ = small_slide(tmp_path)
    studio = Studio.of(Project.open([slide], folder=tmp_path / "other", mpp=MPP))
    with TestClient(make_api(studio), base_url=HERE) as other:
        assert other.get("/slides/1/tiles/0/0/0.jpg").status_code == 200
        slide.rename(tmp_path / "away.png")
        answer = other.get("/slides/1/tiles/0/1/0.jpg")
        assert answer.status_code == 410
        assert "disappeared" in answer.json()["error"]
        assert click(other, "aaaaaaaa", 5, 5)["all"]


def test_classes_have_names_and_colours(client: TestClient) -> None:
    assert client.post("/classes", json={"name": "T cell", "color": "#112233"}).json()["T cell"] == "#112233"
    for name, color in (("", "#112233"), ("a\nb", "#112233"), ("not a cell", "#112233"), ("x", "red")):
        assert client.post("/classes", json={"name": name, "color": color}).status_code == 422


def test_adding_a_class_that_exists_changes_nothing(client: TestClient, studio: Studio) -> None:
    assert client.post("/classes", json={"name": "T"}).json() == {"cell": "#f0e442", "T": "#56b4e9"}
    client.post("/classes", json={"name": "cell", "color": "#112233"})
    client.post("/classes", json={"name": "T", "color": "#445566"})
    before = studio.project.journal.read_bytes()
    for name in ("T", "cell"):
        answer = client.post("/classes", json={"name": name})
        assert answer.json() == {"cell": "#112233", "T": "#445566"}
    assert studio.project.journal.read_bytes() == before


@pytest.mark.parametrize("name", ["Rejected", "Exhaustive"])
def test_a_class_has_no_name_that_means_something_else_in_files(client: TestClient, name: str) -> None:
    answer = client.post("/classes", json={"name": name, "color": "#112233"})
    assert answer.status_code == 422
    assert f"the class {name} is for" in answer.text
    change = {"key": "aaaaaaaa", "add": [{"class": name, "at": [1, 2]}]}
    assert client.post("/slides/1/marks", json=[change]).status_code == 422
    assert name not in client.get("/slides/1/state").json()["classes"]


def test_a_journal_with_a_class_of_the_name_rejected_can_be_read(studio: Studio) -> None:
    marks = [
        {"class": "not a cell", "at": [1, 1], "score": 0.5},
        {"class": "Rejected", "at": [5, 5]},
        {"class": "cell", "at": [9, 9]},
    ]
    studio.book.record([{"key": "c", "class": "Rejected", "color": "#112233"}])
    studio.book.record([{"key": "m", "slide": "1", "add": marks}])
    assert studio.book.cells("1").counts() == {"cell": 1, "Rejected": 2, "not a cell": 0}
