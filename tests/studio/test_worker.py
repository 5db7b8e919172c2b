"""Jobs on several slides, without the training itself."""

from pathlib import Path
from typing import Any

import pytest
from tests.studio.small_project import small_slide

from sparseshot.errors import InputError
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
    others = [first.with_name(name) for name in ("b.png", "c.png")]
    for each in others:
        each.write_bytes(first.read_bytes())
    opened = Studio.of(Project.open([first, *others], folder=tmp_path / "study"))
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
