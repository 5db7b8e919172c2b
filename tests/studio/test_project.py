from pathlib import Path

import pytest
from tests.studio.small_project import MPP, made_result, small_slide

from sparseshot.cells import Cells
from sparseshot.errors import SparseshotError
from sparseshot.studio.project import PROJECT, Project


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """Return a folder of two slides, and beside it their results."""
    folder = tmp_path / "slides"
    folder.mkdir()
    first, centres = small_slide(folder)
    second = first.with_name("other.png")
    second.write_bytes(first.read_bytes())
    for slide in (first, second):
        made_result(tmp_path / "found" / slide.name, slide, Cells(centres, mpp=MPP))
    return folder


def test_a_folder_of_slides_and_one_of_results_make_a_project(slides: Path) -> None:
    project = Project.open([slides, slides.with_name("found")], mpp=MPP)
    assert project.folder == slides.with_name("slides.studio")
    assert [Path(entry.path).name for entry in project.slides.values()] == ["other.png", "small.png"]
    assert [[Path(each).name for each in entry.found] for entry in project.slides.values()] == [
        ["other.png"],
        ["small.png"],
    ]
    again = Project.open([project.folder])
    assert again.slides == project.slides


def test_a_result_finds_its_slide_by_name(slides: Path, tmp_path: Path) -> None:
    found = tmp_path / "found" / "small.png"
    paths = [slides / "small.png", slides / "other.png", found]
    project = Project.open(paths, folder=tmp_path / "p", mpp=MPP)
    assert project.slides["1"].found == (str(found),)
    assert project.slides["2"].found == ()


def test_folders_without_slides_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SparseshotError, match="holds no slide"):
        Project.open([tmp_path / "empty"])
    assert not (tmp_path / "empty.studio" / PROJECT).exists()
