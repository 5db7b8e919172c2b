"""Judged cells, reviewed regions, compared runs, and what the loss has excluded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from fastapi.testclient import TestClient
from tests.studio.small_project import MPP, made_result, past_run, small_slide

from sparseshot.active import ReviewNote
from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.studio.api import make_api
from sparseshot.studio.derived import compared, excluded
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import MARKS
from sparseshot.studio.slide_results import SlideResult
from sparseshot.studio.studio import Studio

BOX = [[100, 100], [300, 100], [300, 300], [100, 300]]


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    slide, centres = small_slide(tmp_path)
    score = np.linspace(0.6, 0.99, len(centres)).astype(np.float32)
    for name, kept in (("one", np.s_[:]), ("two", np.s_[10:])):
        made_result(tmp_path / name, slide, Cells(centres[kept], score=score[kept], mpp=MPP))
    project = Project.open([slide, tmp_path / "one", tmp_path / "two"], folder=tmp_path / "p", mpp=MPP)
    return Studio.of(project)


def inside(studio: Studio) -> Cells:
    return studio.cells_in("1", "f0", shapely.Polygon(BOX), threshold=0.5)


def post(studio: Studio, path: str, body: Any) -> Any:
    with TestClient(make_api(studio)) as client:
        return client.post(f"/slides/1/{path}", json=body).json()


def test_a_review_accepts_what_nobody_rejected(studio: Studio, tmp_path: Path) -> None:
    found = inside(studio)
    assert len(found) > 10
    wrong, missed = found.xy[3].tolist(), [105.0, 290.0]
    marks = [
        {"key": "aaaaaaaa", "add": [{"class": "not a cell", "at": wrong}]},
        {"key": "bbbbbbbb", "add": [{"class": "cell", "at": missed}, {"class": "cell", "at": [500, 500]}]},
    ]
    post(studio, "marks", marks)
    review = {"key": "cccccccc", "result": "f0", "region": BOX, "threshold": 0.5, "by": "Ada"}
    assert post(studio, "review", review) == {"accepted": len(found) - 1, "rejected": 1}
    cells = studio.book.cells("1", mpp=MPP)
    assert cells.counts() == {"cell": len(found) - 1 + 2, "not a cell": 0, "Rejected": 1}
    assert cells.score is not None
    assert (cells.score == 1).sum() == 2  # made by hand
    assert cells.region_notes is not None
    note = ReviewNote.of(cells.region_notes[0])
    assert note is not None
    assert note.by == "Ada"
    # Both go through a file and back, and a second review of the same region changes nothing but the note.
    write_cells(cells, tmp_path / "marks.geojson")
    assert read_cells(tmp_path / "marks.geojson").counts()["Rejected"] == 1
    assert post(studio, "review", review | {"key": "dddddddd"}) == {"accepted": 0, "rejected": 0}
    assert studio.book.cells("1").counts() == cells.counts()
    for key in ("eeeeeeee", "ffffffff"):
        post(studio, "marks", [{"key": key, "undo": True}])
    assert studio.book.cells("1").counts() == {"cell": 2, "not a cell": 1}
    assert len(studio.book.cells("1").regions) == 0


@pytest.mark.parametrize(
    ("learned", "is_new"),
    [(shapely.box(300, 100, 500, 300), True), (shapely.box(200, 100, 500, 300), False)],
)
def test_the_meter_rests_on_regions_that_the_run_has_not_learned(
    studio: Studio, learned: shapely.Polygon, is_new: bool
) -> None:
    """A region beside one that was learned is new; one that overlaps it is not."""
    xy = studio.found("1", "f0").cells.xy
    past_run(studio.runs, 1)
    studio.runs.result(1, "1").add_view((0, 0, 1000, 700), Cells(xy, score=np.full(len(xy), 0.9), mpp=MPP))
    marks = studio.runs.folder(1) / MARKS / "1.parquet"
    marks.parent.mkdir()
    Cells([[350, 200]], regions=np.array([learned], object)).write(marks)
    region = inside(studio).xy
    marked = [{"class": "cell", "at": at} for at in region[:-5].tolist()]
    studio.book.record([{"key": "a", "slide": "1", "add": [{"region": BOX}, *marked]}])
    quality = studio.expected("r1", 0.5)
    assert (quality is not None) == is_new
    if quality is not None:
        assert quality.precision is not None
        _, low, high = quality.precision
        assert low < 1 - 5 / len(region) < high


def test_counts_and_files_are_what_people_decided(studio: Studio, tmp_path: Path) -> None:
    total = len(studio.found("1", "f0"))
    found = inside(studio)
    wrong, missed, elsewhere = found.xy[3].tolist(), [105.0, 290.0], [510.5, 511.5]

    def counted(area: str = "0,0,9999,9999") -> tuple[int, int]:
        with TestClient(make_api(studio)) as client:
            answer = client.get(f"/slides/1/found/f0/cells?area={area}&threshold=0.5").json()
            exported = tmp_path / "found.csv"
            exported.write_bytes(client.get("/slides/1/export/f0.csv?threshold=0.5").content)
        assert len(read_cells(exported)) == sum(answer["in_slide"].values())
        return sum(answer["in_slide"].values()), sum(answer["in_view"].values())

    assert counted("100,100,300,300") == (total, len(found))
    rejected = [{"class": "not a cell", "at": wrong}, {"class": "T", "at": missed}]
    post(studio, "marks", [{"key": "aaaaaaaa", "add": rejected}])
    assert counted("100,100,300,300") == (total, len(found))  # one less and one more
    post(studio, "marks", [{"key": "bbbbbbbb", "add": [{"class": "not a cell", "at": found.xy[5].tolist()}]}])
    assert counted() == (total - 1, total - 1)
    post(studio, "marks", [{"key": "cccccccc", "add": [{"class": "cell", "at": found.xy[7].tolist()}]}])
    assert counted() == (total - 1, total - 1)  # it was found already
    box = [[400, 400], [600, 400], [600, 600], [400, 600]]
    lost = len(studio.cells_in("1", "f0", shapely.Polygon(box), threshold=0.5))
    post(studio, "marks", [{"key": "dddddddd", "add": [{"region": box}, {"class": "cell", "at": elsewhere}]}])
    assert counted("400,400,600,600") == (total - lost, 1)  # only what somebody marked there


def test_a_lasso_judges_what_it_encloses(studio: Studio) -> None:
    found = inside(studio)
    triangle = [[100, 100], [300, 100], [100, 300]]
    wanted = shapely.contains_xy(shapely.Polygon(triangle), found.xy).sum()
    verdict = {"key": "aaaaaaaa", "result": "f0", "area": triangle, "threshold": 0.5, "accept": True}
    assert post(studio, "judge", verdict) == {"marked": wanted}
    marks = studio.book.cells("1")
    assert marks.score is not None
    assert (marks.score < 1).all()
    crossed = [[0, 0], [10, 10], [10, 0], [0, 10]]
    assert post(studio, "judge", verdict | {"key": "bbbbbbbb", "area": crossed}) == {"marked": 0}
    assert post(studio, "judge", verdict | {"area": [[0, 0], [5, 5], [9, 9]]}) == {
        "error": "the area is empty"
    }


@pytest.mark.parametrize(
    "change",
    [{"region": [[0, 0], [9, 9], [9, 0], [0, 9]]}, {"threshold": 2}, {"result": "../1"}, {"by": "x" * 101}],
)
def test_reviews_without_sense_are_refused(studio: Studio, change: dict[str, Any]) -> None:
    review = {"key": "cccccccc", "result": "f0", "region": BOX, "threshold": 0.5} | change
    assert "error" in post(studio, "review", review)
    assert studio.book.items("1") == []


def test_a_region_is_reviewed_only_where_the_model_has_looked(studio: Studio) -> None:
    result = studio.runs.result(3, "1")
    result.add_view((0, 0, 300, 300), Cells([[150, 150], [170, 170]], score=[0.9, 0.8], mpp=MPP))
    review = {"key": "cccccccc", "result": "r3", "threshold": 0.5}
    elsewhere = [[200, 200], [400, 200], [400, 400], [200, 400]]
    with TestClient(make_api(studio)) as client:
        answer = client.post("/slides/1/review", json=review | {"region": elsewhere})
        assert answer.status_code == 409
        assert "not predicted all of this region" in answer.json()["error"]
        assert studio.book.items("1") == []
        answer = client.post("/slides/1/review", json=review | {"region": BOX})
        assert answer.json() == {"accepted": 2, "rejected": 0}


@pytest.mark.parametrize("is_partial", [False, True])
def test_found_cells_have_their_own_outlines(studio: Studio, is_partial: bool) -> None:
    cells = outlined(studio)
    result = studio.runs.result(3, "1")
    made_result(result.folder, studio.project.path("1"), cells)  # of two shards
    if is_partial:
        manifest = result.manifest()
        assert manifest is not None
        replace(manifest, finished=False).save(result.folder)
        write_view(result, cells)
    assert_own_outlines(studio, len(cells))


def test_outlines_are_those_of_the_cells_though_the_run_ends_meanwhile(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, found = outlined(studio), studio.found
    result = studio.runs.result(3, "1")
    result.folder.mkdir(parents=True)
    write_view(result, cells)

    def ending(slide: str, name: str) -> Any:
        answer = found(slide, name)
        made_result(result.folder, studio.project.path("1"), cells)
        return answer

    monkeypatch.setattr(studio, "found", ending)
    assert_own_outlines(studio, len(in_view(cells)))


def outlined(studio: Studio) -> Cells:
    xy = studio.result("1", "f0").cells()[0].xy
    return Cells(xy, outline=shapely.buffer(shapely.points(xy), 5), mpp=MPP)


def in_view(cells: Cells) -> Cells:
    return cells[((cells.xy >= 300) & (cells.xy <= 600)).all(axis=1)]


def write_view(result: SlideResult, cells: Cells) -> None:
    result.add_view((300, 300, 600, 600), in_view(cells))


def assert_own_outlines(studio: Studio, number: int) -> None:
    cells = studio.cells_in("1", "r3", shapely.box(0, 0, 1000, 700), threshold=0)
    assert len(cells) == number
    assert cells.outline is not None
    centroids = shapely.get_coordinates(shapely.centroid(cells.outline))
    np.testing.assert_allclose(centroids, cells.xy, atol=0.01)


def test_two_results_are_compared(studio: Studio) -> None:
    cells = studio.shown("1", "f0", against="f1")
    total = len(studio.found("1", "f0"))
    assert list(cells.counts(threshold=0).values()) == [total - 10, 10, 0]
    with TestClient(make_api(studio)) as client:
        query = "area=0,0,9999,9999&against=f1"
        answer = client.get(f"/slides/1/found/f0/cells?{query}").json()
        assert answer["compared"] == [total - 10, 10, 0]
        assert answer["in_slide"] == answer["in_view"] == {"found by both": total - 10, "only the first": 10}
        shapes = client.get(f"/slides/1/found/f0/cells?{query}&vectors=true").json()
        assert len(shapes["cells"]) == total
        assert client.get("/slides/1/found/f0/1/0/0.png?against=f1").status_code == 200
        unknown = client.get("/slides/1/found/f0/1/0/0.png?paint=excluded")
        assert (unknown.status_code, "finished runs only" in unknown.json()["error"]) == (422, True)
        for name in ("f0-f1", "f0x", "../1"):
            assert client.get(f"/slides/1/found/f0/1/0/0.png?against={name}").status_code == 422


def test_each_result_counts_at_its_own_threshold() -> None:
    one = FoundCells.of(Cells([[5, 5], [90, 90]], score=[0.9, 0.4]), mpp=0.5)
    two = FoundCells.of(Cells([[6, 5], [90, 90]], score=[0.3, 0.4]), mpp=0.5)
    assert list(compared(one, two, thresholds=(0.5, 0.2)).counts(threshold=0).values()) == [1, 0, 1]


def test_excluded_cells_are_likely_and_unmarked() -> None:
    found = FoundCells.of(
        Cells([[10, 10], [50, 10], [90, 10], [90, 90]], score=[0.95, 0.95, 0.6, 0.95]), mpp=0.5
    )
    marks = Cells([[11, 10]], regions=[shapely.box(80, 80, 99, 99)])
    counts = excluded(found, marks, rho=0.9).counts(threshold=0)
    assert counts == {"left out by the loss": 1, "counted as background": 1, "marked": 2}
