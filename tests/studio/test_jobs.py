import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.studio.small_project import past_run, small_studio, worker_of

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.files import locked, read_json, write_json
from sparseshot.prediction import read_prediction
from sparseshot.studio import slide_results
from sparseshot.studio.jobs import FOUND, JOB, RUN, Job, Jobs, State
from sparseshot.studio.slide_results import FoundIndexes, SlideResult
from sparseshot.studio.studio import Studio
from sparseshot.work.run_files import MODEL


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    opened, centres = small_studio(tmp_path)
    marks = [{"class": "cell", "at": list(map(float, xy))} for xy in centres[::12]]
    marks.append({"class": "not a cell", "at": [50.0, 50.0]})
    opened.book.record([{"key": "marks", "slide": "1", "add": marks}])
    opened.jobs.steps = 3
    yield opened
    opened.jobs.close()


def wait(jobs: Jobs, stages: set[str], seconds: float = 240) -> tuple[Job, State]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job, state = jobs.history()[0]
        if state.stage in stages:
            return job, state
        assert state.stage not in {"failed", "stopped"}, state.message
        time.sleep(0.1)
    raise AssertionError(f"still {jobs.history()[0]} after {seconds} s")


def test_without_marks_there_is_nothing_to_learn(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    with pytest.raises(InputError, match="no marks yet"):
        studio.jobs.train("1")
    assert studio.jobs.history() == []


def test_a_run_trains_predicts_the_view_and_then_the_slide(studio: Studio) -> None:
    view = (0.0, 0.0, 300.0, 200.0)
    studio.jobs.train("1", view)
    with pytest.raises(InputError, match="under way"):
        studio.jobs.train("1", view)
    job, state = wait(studio.jobs, {"done"})
    assert (job.number, job.marks, job.start) == (1, len(studio.book.items("1")), "starter")
    config = read_json(studio.jobs.folder(1) / RUN / "recipe.json")["settings"]
    assert (config["task"], config["start"], config["negative_classes"]) == (
        "detect",
        "starter",
        ["not a cell"],
    )
    result = studio.jobs.result(1, "1")
    first = result.area_in_view()
    assert first == view
    assert result.view.is_file()
    found = read_prediction(studio.jobs.folder(1) / FOUND / "1")
    _, index = studio.found("1", "r1")
    assert len(index) == len(found)
    assert studio.results("1") == {"r1": f"run 1, {job.marks} marks"}
    assert 0 < state.threshold < 1
    # The next one goes on from it, in the same process.
    process = studio.jobs._worker
    studio.jobs.train("1", None)
    assert process is not None
    assert studio.jobs._worker is process
    job, _ = wait(studio.jobs, {"training", "view", "slides", "done"})
    assert job.start == str(studio.jobs.folder(1) / RUN)
    studio.jobs.stop(2)
    assert wait_for_end(studio.jobs) in {"stopped", "done"}


def wait_for_end(jobs: Jobs) -> str:
    for _ in range(2400):
        stage = jobs.history()[0][1].stage
        if stage in {"done", "stopped", "failed"}:
            return stage
        time.sleep(0.1)
    return "never"


def test_a_worker_that_dies_is_reported_and_its_run_goes_on(studio: Studio) -> None:
    studio.jobs.steps = 0  # as many as fit into the time, and the same ones after a resume
    studio.jobs.train("1")
    wait(studio.jobs, {"training"})
    config = studio.jobs.folder(1) / RUN / "recipe.json"
    while not config.is_file():
        time.sleep(0.02)
    os.kill(worker_of(studio.project.folder), signal.SIGKILL)
    assert wait_for_end(studio.jobs) == "failed"
    assert "ended while training" in studio.jobs.state(1).message
    studio.jobs.resume(1)
    while "step" not in wait(studio.jobs, {"training", "view", "slides"})[1].message:
        time.sleep(0.02)
    studio.jobs.stop(1)
    assert wait_for_end(studio.jobs) == "stopped"


def test_a_run_that_fails_says_why(studio: Studio) -> None:
    studio.project.path("1").rename(studio.project.folder / "gone.png")
    studio.jobs.train("1")
    assert wait_for_end(studio.jobs) == "failed"
    assert "no such slide" in studio.jobs.state(1).message


def test_training_starts_from_a_finished_model_however_its_run_ended(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "_start", lambda *_: None)
    folders = [past_run(studio.jobs, 1), past_run(studio.jobs, 2, State("stopped"))]
    past_run(studio.jobs, 3, State("stopped"))
    for folder in folders:
        (folder / RUN).mkdir()
        (folder / RUN / MODEL).touch()
    assert studio.jobs.train("1", start=2).start == str(studio.jobs.folder(2) / RUN)
    (studio.jobs.folder(4) / JOB).unlink()
    assert studio.jobs.train("1", start=3).start == str(studio.jobs.folder(2) / RUN)
    (studio.jobs.folder(4) / JOB).unlink()
    assert studio.jobs.train("1", start=1).start == str(studio.jobs.folder(1) / RUN)


def test_a_process_that_dies_while_predicting_keeps_its_threshold(studio: Studio) -> None:
    past_run(studio.jobs, 1, State("slides", "1 cell so far", threshold=0.07, begun=5.0))
    state = studio.jobs.state(1)
    assert (state.stage, state.threshold, state.begun) == ("failed", 0.07, 5.0)
    assert "ended while predicting" in state.message
    assert studio.threshold("1", "r1") == 0.07


def test_a_process_without_a_job_ends_with_the_studio(studio: Studio) -> None:
    studio.jobs.warm_up()
    waiting = studio.jobs._worker
    assert waiting is not None
    studio.jobs.close()
    assert waiting.poll() is not None


def test_a_process_that_still_suggests_regions_outlives_the_studio(studio: Studio) -> None:
    folder = past_run(studio.jobs, 1)
    for is_at_work in (True, False):
        worker = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
        studio.jobs._worker = worker
        with locked(folder) if is_at_work else nullcontext():
            studio.jobs.close()
        assert (worker.poll() is None) == is_at_work
        worker.kill()
        worker.wait()


def test_a_result_grows_from_the_part_in_view(tmp_path: Path) -> None:
    result = SlideResult(tmp_path / "found", 0.5)
    assert result.version == ""
    Cells([[10, 10], [20, 20]], score=[0.9, 0.8], mpp=0.5).write(result.view)
    write_json(result.view.with_suffix(".json"), [0, 0, 100, 100])
    assert len(result.index()) == 2
    assert result.version


def test_a_growing_result_is_not_read_for_every_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, indexes = SlideResult(tmp_path / "found", 0.5), FoundIndexes()
    write_json(result.view.with_suffix(".json"), [0, 0, 100, 100])

    def grow(cells: int) -> None:
        Cells([[i, i] for i in range(cells)], score=[0.9] * cells, mpp=0.5).write(result.view)
        os.utime(result.view, ns=(cells, cells))

    grow(1)
    monkeypatch.setattr(slide_results, "_REST", 1e9)
    first, _ = indexes.of(result)
    grow(2)
    assert indexes.of(result)[0] == first
    assert len(indexes.of(result)[1]) == 1
    monkeypatch.setattr(slide_results, "_REST", 0)
    version, cells = indexes.of(result)
    assert (version, len(cells)) == (result.version, 2)
