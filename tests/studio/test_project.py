import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.studio.small_project import MPP, copies, made_result, small_slide

from sparseshot.cells import Cells
from sparseshot.errors import FormatError, InputError, OutputError, RepairWarning, SlideError, SparseshotError
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project import PROJECT, Project


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """Return a folder of two slides, and beside it their results."""
    folder = tmp_path / "slides"
    folder.mkdir()
    first, centres = small_slide(folder)
    for slide in (first, *copies(first, "other.png")):
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


def three_slides(folder: Path) -> list[Path]:
    first, _ = small_slide(folder, width=60, height=60)
    return [first, *copies(first, "b.png", "c.png")]


def names(project: Project) -> dict[str, str]:
    return {slide: Path(entry.path).name for slide, entry in project.slides.items()}


def test_two_processes_keep_each_others_slides(tmp_path: Path) -> None:
    a, b, c = three_slides(tmp_path)
    folder = tmp_path / "study"
    ours = Project.open([a], folder=folder)
    Project.open([b], folder=folder, mpp=MPP)
    ours.set_mpp("1", 0.25)
    third = Project.open([c], folder=folder, mpp=MPP)
    assert names(third) == {"1": "small.png", "2": "b.png", "3": "c.png"}
    assert [entry.mpp for entry in Project.open([folder]).slides.values()] == [0.25, MPP, MPP]


def test_processes_that_add_slides_at_once_give_them_different_ids(tmp_path: Path) -> None:
    paths, folder = three_slides(tmp_path), tmp_path / "study"
    adding = [
        threading.Thread(target=Project.open, args=[[path]], kwargs={"folder": folder, "mpp": MPP})
        for path in paths
    ]
    for each in adding:
        each.start()
    for each in adding:
        each.join()
    assert sorted(names(Project.open([folder])).values()) == ["b.png", "c.png", "small.png"]
    assert sorted(each.name for each in folder.iterdir()) == [PROJECT]


def test_a_project_file_that_appears_while_the_folder_is_read_is_none_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = three_slides(tmp_path)
    folder = Project.open([a], folder=tmp_path / "study", mpp=MPP).folder
    exists = Path.exists
    asked: list[Path] = []

    def not_yet(path: Path) -> bool:
        if path == folder / PROJECT and not asked:
            asked.append(path)
            return False
        return exists(path)

    monkeypatch.setattr(Path, "exists", not_yet)
    assert names(Project.open([b], folder=folder, mpp=MPP)) == {"1": "small.png", "2": "b.png"}


def test_an_id_with_marks_is_not_given_to_another_slide(tmp_path: Path) -> None:
    a, b, _ = three_slides(tmp_path)
    project = Project.open([a], folder=tmp_path / "study", mpp=MPP)
    MarkBook(project.journal).record([{"key": "k", "slide": "2", "add": [{"class": "cell", "at": [1, 1]}]}])
    assert names(Project.open([b], folder=project.folder, mpp=MPP)) == {"1": "small.png", "3": "b.png"}


@pytest.mark.parametrize(
    "damaged", ["{", '{"format": "sparseshot studio", "version": 1, "slides": [{"id": "1"}]}']
)
def test_a_damaged_project_file_is_repaired_without_losing_marks(tmp_path: Path, damaged: str) -> None:
    slide, *_ = three_slides(tmp_path)
    project = Project.open([slide], mpp=MPP)
    MarkBook(project.journal).record([{"key": "k", "slide": "1", "add": [{"class": "cell", "at": [1, 1]}]}])
    file = project.folder / PROJECT
    file.write_text(damaged)
    with pytest.raises(FormatError, match="restore it from a backup, or write it anew") as told:
        Project.open([slide])
    assert "delete" not in str(told.value)
    file.unlink()
    with pytest.raises(OutputError, match=r"holds marks and no project\.json; restore it") as missing:
        Project.open([slide])
    advised = str(missing.value)
    file.write_text(
        advised[advised.index("{") : advised.rindex("}") + 1].replace("/folder/biopsy.svs", str(slide))
    )
    again = Project.open([slide], mpp=MPP)
    assert again.path("1") == slide
    assert len(MarkBook(again.journal).items("1")) == 1


def test_damaged_entries_of_a_project_file_are_named_and_the_others_opened(tmp_path: Path) -> None:
    paths = three_slides(tmp_path)
    project = Project.open(paths[:1], folder=tmp_path / "study", mpp=MPP)
    file = project.folder / PROJECT
    good = json.loads(file.read_text())["slides"][0]
    bad = [{"id": "9" * 5000, "path": "a.png"}, {"id": "x", "path": "a"}, {"id": "1", "path": "again"}, None,
           good | {"id": "4", "mpp": -1}, {"id": "5"}]  # fmt: skip
    damaged = json.dumps({"format": "sparseshot studio", "version": 1, "slides": [good, *bad]})
    file.write_text(damaged)
    with pytest.warns(RepairWarning, match="slide 2: its id is '9999.*kept as project.damaged.json"):
        assert names(Project.open([project.folder])) == {"1": "small.png"}
    with pytest.warns(RepairWarning, match="slide 2"):
        assert names(Project.open(paths[1:2], folder=project.folder, mpp=MPP)) == {
            "1": "small.png",
            "2": "b.png",
        }
    assert names(Project.open([project.folder])) == {"1": "small.png", "2": "b.png"}
    assert (project.folder / "project.damaged.json").read_text() == damaged


def test_ome_zarr_is_a_slide(tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    folder.mkdir()
    zarr = pytest.importorskip("zarr")
    axes = [{"name": "c", "type": "channel"}]
    axes += [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    scale = {"type": "scale", "scale": [1, MPP, MPP]}
    levels = [{"path": "0", "coordinateTransformations": [scale]}]
    group = zarr.open_group(str(folder / "a.ome.zarr"), mode="w", zarr_format=2)
    group.create_array("0", data=np.full((3, 60, 60), 200, np.uint8))
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": levels}]
    assert names(Project.open([folder / "a.ome.zarr"], folder=tmp_path / "p")) == {"1": "a.ome.zarr"}
    assert names(Project.open([folder], folder=tmp_path / "q")) == {"1": "a.ome.zarr"}


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    slide, *_ = three_slides(tmp_path)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    slide.rename(odd)
    with pytest.raises(InputError, match=r"caf�\.png: the name is not in UTF-8; rename"):
        Project.open([odd], mpp=MPP)


def test_a_given_pixel_size_leaves_stated_ones_alone(tmp_path: Path) -> None:
    silent, stating, _ = three_slides(tmp_path)
    with Image.open(silent) as image:
        image.save(stating, dpi=(101600, 101600))  # 0.25 µm
    folder = tmp_path / "study"
    for _ in range(2):
        project = Project.open([silent, stating], folder=folder, mpp=0.5)
        assert [entry.mpp for entry in project.slides.values()] == [0.5, None]
        assert [project.slide(each).mpp for each in "12"] == pytest.approx([0.5, 0.25], rel=1e-3)
    assert Project.open([silent], folder=folder, mpp=0.4).slides["1"].mpp == 0.4
    assert Project.open([silent], folder=folder).slides["1"].mpp == 0.4


def test_a_file_that_is_no_slide_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    for mpp in (None, 0.5):
        with pytest.raises(SlideError, match="not an image"):
            Project.open([tmp_path / "a.png"], mpp=mpp)
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]
