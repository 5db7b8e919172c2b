"""A run on several slides, with the training and the network left out."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.studio.small_project import MPP, copies, past_run, small_slide

from sparseshot.files import write_json
from sparseshot.images import Slide, tissue_mask
from sparseshot.studio import worker
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import STOP, RunProgress, RunRecipe, read_progress
from sparseshot.studio.studio import Studio
from sparseshot.work import Event, WorkFolder
from sparseshot.work.folder import RECIPE, as_json


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace training and prediction; return the names of predicted slides."""
    names: list[str] = []

    def find_cells(slide: Slide, *_: Any, everywhere: bool, **__: Any) -> None:
        if not everywhere:
            tissue_mask(slide)
        names.append(slide.name)

    monkeypatch.setattr(worker, "learn", lambda *_: SimpleNamespace(threshold=0.3))
    monkeypatch.setattr(worker, "find_cells", find_cells)
    for name in ("finding_model", "find_cells_in_view", "suggest", "_rehearse"):
        monkeypatch.setattr(worker, name, lambda *_, **__: None)
    return names


def performed(studio: Studio, **recipe: Any) -> RunProgress:
    folder = past_run(studio.runs, 1, None)
    wanted = RunRecipe(1, "1", (0, 0, 9, 9), marks=1, **recipe)
    write_json(folder / RECIPE, as_json(wanted))
    worker.perform(studio.project, wanted, WorkFolder(folder))
    progress = read_progress(folder)
    assert progress is not None
    return progress


def test_a_slide_that_cannot_be_read_is_left_out_and_named(tmp_path: Path, found: list[str]) -> None:
    first, _ = small_slide(tmp_path, width=200, height=200)
    slides = [first, *copies(first, "b.png", "c.png", "d.png")]
    studio = Studio.of(Project.open(slides, folder=tmp_path / "study"))
    for slide in "124":
        studio.project.set_mpp(slide, MPP)
    slides[1].write_bytes(slides[1].read_bytes()[:20])
    slides[3].unlink()
    progress = performed(studio)
    assert (progress.stage, progress.threshold, found) == ("done", 0.3, ["small.png"])
    for said in (
        "1 mark; b.png: ",
        "c.png: the file does not state its pixel size",
        "d.png: the file has dis",
    ):
        assert said in progress.message


def test_where_no_slide_can_be_read_the_run_has_failed(tmp_path: Path, found: list[str]) -> None:
    slide, _ = small_slide(tmp_path, width=200, height=200)
    studio = Studio.of(Project.open([slide], folder=tmp_path / "study", mpp=MPP))
    slide.unlink()
    progress = performed(studio)
    assert (progress.stage, found) == ("failed", [])
    assert progress.message == "small.png: the file has disappeared; put it back and press Resume"


def test_a_slide_without_tissue_says_what_to_do(tmp_path: Path, found: list[str]) -> None:
    Image.fromarray(np.full((3000, 3000, 3), 255, np.uint8)).save(tmp_path / "white.png")
    studio = Studio.of(Project.open([tmp_path / "white.png"], folder=tmp_path / "study", mpp=MPP))
    (note,) = performed(studio).notes
    assert "no tissue was found" in note
    assert "--everywhere" in note
    assert performed(studio, everywhere=True).notes == ()
    assert len(found) == 2


def test_a_run_ends_when_somebody_stops_it_or_begins_another(tmp_path: Path, found: list[str]) -> None:
    slide, _ = small_slide(tmp_path, width=200, height=200)
    studio = Studio.of(Project.open([slide], folder=tmp_path / "study", mpp=MPP))
    past_run(studio.runs, 2, None)
    assert "another run began" in performed(studio).message
    (studio.runs.folder(1) / STOP).touch()
    assert performed(studio).stage == "stopped"
    assert found == []


def test_events_become_words(tmp_path: Path) -> None:
    teller = worker._Teller(WorkFolder(tmp_path), RunRecipe(1, "1"))
    teller.report(Event("preparing", message="task detect, because …; --task overrides it"))
    assert teller.state.message == "reading the marks"
    teller.report(Event("training", 50, 100, {"loss": 0.25}))
    assert teller.state.share in {0.0, 0.5}  # written at most four times a second
    teller.report(Event("training", 100, 100, {"loss": 0.125}))
    assert (teller.state.message, teller.state.loss) == ("step 100 of 100", (0.25, 0.125))
