"""Slides are added from the page only out of the folders that the studio was started with."""

import os
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.studio.small_project import small_slide

from sparseshot.errors import DataNotFoundError, OutputError
from sparseshot.studio.api import make_api
from sparseshot.studio.choosing import FileRoots
from sparseshot.studio.guard import Guard
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio

HERE = "http://127.0.0.1:8686"
ESCAPES = [
    "0/../secret.png",
    "0/..",
    "0/case/../../secret.png",
    "1/secret.png",
    "-1",
    "/etc/passwd",
    "0//etc/passwd",
    "../secret.png",
    "0/.hidden.png",
    "0/linked.png",
    "0/away",
    "0/away/secret.png",
    "0/case\\..\\..\\secret.png",
    "0/\0",
    "٠/a.png",
    "0/nothing.png",
    "0/" + "a" * 300,
]


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """Return a folder with a slide, one in a folder below, and links that lead out."""
    slide, _ = small_slide(tmp_path)
    folder = tmp_path / "slides"
    (folder / "case").mkdir(parents=True)
    for each in (folder / "a.png", folder / "case" / "b.png", folder / ".hidden.png"):
        shutil.copy(slide, each)
    (folder / "notes.txt").write_text("no slide")
    shutil.move(slide, tmp_path / "secret.png")
    (folder / "linked.png").symlink_to(tmp_path / "secret.png")
    (folder / "away").symlink_to(tmp_path)
    return folder


def test_folders_are_listed_with_their_slides_and_nothing_else(slides: Path) -> None:
    roots = FileRoots.around([slides])
    assert roots.listed("") == {
        "name": "slides",
        "up": None,
        "folders": [{"place": "0/case", "name": "case"}],
        "slides": [{"place": "0/a.png", "name": "a.png"}],
    }
    assert [each["name"] for each in roots.listed("0/case")["slides"]] == ["b.png"]
    assert roots.listed("0/case")["up"] == "0"
    assert roots.path("0/case/b.png") == slides / "case" / "b.png"
    assert FileRoots.around([slides / "a.png", slides / "case"]).folders == (slides,)


@pytest.mark.parametrize("place", ESCAPES)
def test_nothing_outside_can_be_named(slides: Path, place: str) -> None:
    roots = FileRoots.around([slides])
    with pytest.raises(DataNotFoundError):
        roots.path(place)
    with pytest.raises(DataNotFoundError):
        roots.listed(place)


def test_slides_are_added_to_an_empty_project_over_http(
    slides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(slides)
    project = Project.open([])
    assert project.folder == slides / "sparseshot.studio"
    studio = Studio.of(project)
    studio.files = FileRoots.around([slides])
    with TestClient(Guard(make_api(studio), host="127.0.0.1", port=8686), base_url=HERE) as client:
        assert client.get("/slides").json() == []
        for place in ESCAPES:
            assert client.get("/files", params={"place": place}).status_code == 404
            answer = client.post("/slides", json={"place": place})
            assert answer.status_code == 404
            assert str(slides.parent) not in answer.text
        for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
            assert client.get("/files", headers=headers).status_code == 403
            assert client.post("/slides", json={"place": "0/a.png"}, headers=headers).status_code == 403
        assert client.get("/slides").json() == []
        assert client.post("/slides", json={"place": "0/case/b.png"}).json() == {"slide": "1"}
        assert client.post("/slides", json={"place": "0/case/b.png"}).json() == {"slide": "1"}  # once
        assert client.post("/slides", json={"place": "0/notes.txt"}).status_code in {410, 422}
        assert [each["name"] for each in client.get("/slides").json()] == ["b.png"]
        assert client.get("/files").json()["folders"] == [{"place": "0/case", "name": "case"}]
    assert [each.path for each in Project.open([]).slides.values()] == ["case/b.png"]


def test_a_slide_in_a_folder_that_cannot_be_written_says_what_to_do(
    slides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:  # who may write everywhere

        def refuse(self: Path, *_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        slides.chmod(0o555)
    with pytest.raises(OutputError, match="--project"):
        Project.open([slides / "a.png"], mpp=0.5)


def test_a_wrong_pixel_size_can_be_corrected(slides: Path, tmp_path: Path) -> None:
    studio = Studio.of(Project.open([slides / "a.png"], folder=tmp_path / "p", mpp=0.5))
    found = studio.runs.result(0, "1").folder
    found.mkdir(parents=True)
    with TestClient(make_api(studio), base_url=HERE) as client:
        assert client.post("/slides/1/mpp", json={"mpp": 0.25}).status_code == 200
    assert studio.project.slide("1").mpp == 0.25
    assert Project.open([], folder=tmp_path / "p").slide("1").mpp == 0.25
