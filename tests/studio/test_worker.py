"""Jobs on several slides, without the training itself."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.studio.small_project import copies, small_slide

from sparseshot.errors import InputError
from sparseshot.prediction import Model
from sparseshot.studio import worker as worker_module
from sparseshot.studio.jobs import Jobs
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio
from sparseshot.studio.worker import Worker
from sparseshot.training.annotated import TrainingData


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    """Return a studio with three slides, two of them with marks; jobs stay where they are."""
    first, centres = small_slide(tmp_path, width=200, height=200)
    slides = [first, *copies(first, "b.png", "c.png")]
    opened = Studio.of(Project.open(slides, folder=tmp_path / "study"))
    marks = [{"class": "cell", "at": xy} for xy in centres.tolist()]
    opened.book.record([{"key": each, "slide": each, "add": marks} for each in "12"])
    monkeypatch.setattr(Jobs, "_start", lambda *_: None)
    return opened


def work(studio: Studio) -> Worker:
    job = studio.jobs.train("1", (0, 0, 100, 100))
    worker = Worker(Project.open([studio.project.folder]), studio.jobs.folder(job.number))
    worker.run()
    return worker


def test_every_slide_has_the_pixel_size_that_a_person_gave(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[float] = []

    def train_run(_: Any, data: TrainingData, *__: Any, **___: Any) -> None:
        learned.extend(item.slide.mpp for item in data.load()[0])
        raise InputError("no time to train")

    monkeypatch.setattr(worker_module, "train_run", train_run)
    monkeypatch.setattr(worker_module, "steps_in", lambda *_: 1)
    studio.project.set_mpp("1", 0.5)
    studio.project.set_mpp("2", 0.25)
    assert "no time to train" in work(studio).state.message
    assert learned == [0.5, 0.25]


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Replace training, prediction and suggestions; return which slides they read."""
    slides: dict[str, list[str]] = {"view": [], "whole": [], "suggested": []}
    checkpoint = SimpleNamespace(threshold=0.3, config=SimpleNamespace(task="detect"))
    monkeypatch.setattr(Worker, "_train", lambda _: checkpoint)
    monkeypatch.setattr(Model, "load", lambda *_, **__: None)
    monkeypatch.setattr(worker_module, "run_data", lambda _: None)

    def reading(what: str) -> Callable[..., Any]:
        return lambda slide, *_, **__: slides[what].append(slide.name)

    monkeypatch.setattr(
        Worker, "_predict_view", lambda self, _, name: reading("view")(self.project.slide(name))
    )
    monkeypatch.setattr(worker_module, "predict_slide", reading("whole"))
    monkeypatch.setattr(
        worker_module, "write_next", lambda _, __, offered, *___, **____: slides["suggested"].extend(offered)
    )
    return slides


def test_a_slide_that_cannot_be_read_is_left_out_and_named(
    studio: Studio, predicted: dict[str, list[str]]
) -> None:
    studio.project.set_mpp("1", 0.5)
    studio.project.set_mpp("2", 0.5)
    broken = studio.project.path("2")
    broken.write_bytes(broken.read_bytes()[:20])
    state = work(studio).state
    assert (state.stage, state.threshold) == ("done", 0.3)
    assert "b.png: " in state.message
    assert "c.png: the file does not state its pixel size" in state.message
    assert predicted == {"view": ["small.png"], "whole": ["small.png"], "suggested": ["1"]}


def test_a_damaged_slide_in_view_does_not_keep_others_from_being_predicted(
    studio: Studio, predicted: dict[str, list[str]]
) -> None:
    for slide in "123":
        studio.project.set_mpp(slide, 0.5)
    studio.project.path("1").write_bytes(b"no image")
    assert work(studio).state.stage == "done"
    assert predicted == {"view": [], "whole": ["b.png", "c.png"], "suggested": ["2", "3"]}
