import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.studio.small_project import copies, past_run, small_studio, worker_of

from sparseshot import files
from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.files import locked, read_json, write_json
from sparseshot.prediction import read_prediction
from sparseshot.studio import slide_results
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import FOUND, RUN, RunProgress, Runs, StudioRun, read_run_recipe
from sparseshot.studio.slide_results import Kept, SlideResult
from sparseshot.studio.studio import Studio
from sparseshot.work.folder import MODEL, RECIPE


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    opened, centres = small_studio(tmp_path)
    marks = [{"class": "cell", "at": list(map(float, xy))} for xy in centres[::12]]
    marks.append({"class": "not a cell", "at": [50.0, 50.0]})
    opened.book.record([{"key": "marks", "slide": "1", "add": marks}])
    opened.runs.steps = 3
    yield opened
    opened.runs.close()


def wait(runs: Runs, stages: set[str], seconds: float = 240) -> StudioRun:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run = runs.history()[0]
        state = run.progress
        if state.stage in stages:
            return run
        assert state.stage not in {"failed", "stopped"}, state.message
        time.sleep(0.1)
    raise AssertionError(f"still {runs.history()[0]} after {seconds} s")


def test_without_marks_there_is_nothing_to_learn(tmp_path: Path) -> None:
    studio, _ = small_studio(tmp_path)
    with pytest.raises(InputError, match="no marks yet"):
        studio.runs.train("1")
    assert studio.runs.history() == []


def test_a_run_trains_predicts_the_view_and_then_the_slide(studio: Studio) -> None:
    view = (0.0, 0.0, 300.0, 200.0)
    studio.runs.train("1", view)
    with pytest.raises(InputError, match="under way"):
        studio.runs.train("1", view)
    job, state = wait(studio.runs, {"done"})
    assert (job.number, job.marks, job.start) == (1, len(studio.book.items("1")), "starter")
    config = read_json(studio.runs.folder(1) / RUN / "recipe.json")["settings"]
    assert (config["task"], config["start"], config["negative_classes"]) == (
        "detect",
        "starter",
        ["not a cell"],
    )
    result = studio.runs.result(1, "1")
    assert list(result.areas_in_view().values()) == [view]
    found = read_prediction(studio.runs.folder(1) / FOUND / "1")
    assert len(studio.found("1", "r1")) == len(found)
    (shown,) = studio.state("1", "")["results"]
    assert (shown["id"], shown["name"], shown["run"]) == ("r1", f"Run 1, {job.marks} marks", 1)
    assert state.loss
    assert 0 < state.threshold < 1
    # The next one goes on from it, in the same process.
    process = studio.runs._worker
    studio.runs.train("1", None)
    assert process is not None
    assert studio.runs._worker is process
    job, _ = wait(studio.runs, {"training", "view", "slides", "done"})
    assert job.start == str(studio.runs.folder(1) / RUN)
    studio.runs.stop(2)
    assert wait_for_end(studio.runs) in {"stopped", "done"}


def test_an_opened_slide_has_cells_without_a_click(studio: Studio) -> None:
    studio.runs.find("1", (0.0, 0.0, 300.0, 200.0))
    (run,) = studio.runs.history()
    assert (run.recipe.number, run.recipe.learns) == (0, False)
    run = wait(studio.runs, {"done"})
    assert not (studio.runs.folder(0) / RUN).exists()
    (shown,) = studio.state("1", "")["results"]
    assert (shown["id"], shown["name"], shown["whole"]) == ("r0", "Starter, no marks", True)
    cells, features = studio.runs.result(0, "1").cells()
    assert cells.measurements
    assert features is not None
    assert len(features) == len(cells)
    studio.runs.find("1", None)  # all is there
    assert studio.runs.progress(0).stage == "done"


def test_slides_are_added_to_the_run_that_finds_them(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runs, "warm_up", lambda *_: None)
    second, third = copies(studio.project.path("1"), "b.png", "c.png")
    studio.project = studio.runs.project = Project.open(
        [second, third], folder=studio.project.folder, mpp=0.5
    )
    studio.runs.find("1")
    studio.runs.find("2", (0, 0, 9, 9))
    recipe = read_run_recipe(studio.runs.folder(0))
    assert (recipe.slide, recipe.view, recipe.slides_of(studio.project)) == ("2", (0, 0, 9, 9), ["2", "1"])
    studio.runs.find("1", everything=True)
    assert read_run_recipe(studio.runs.folder(0)).slides_of(studio.project) == ["1", "2", "3"]
    # Nothing is found again while somebody trains.
    studio.runs.train("1")
    studio.runs.find("3")
    assert read_run_recipe(studio.runs.folder(0)).slide == "1"


def wait_for_end(runs: Runs) -> str:
    for _ in range(2400):
        stage = runs.history()[0].progress.stage
        if stage in {"done", "stopped", "failed"}:
            return stage
        time.sleep(0.1)
    return "never"


def test_a_worker_that_dies_is_reported_and_its_run_goes_on(studio: Studio) -> None:
    studio.runs.steps = 100_000
    studio.runs.train("1")
    wait(studio.runs, {"training"})
    config = studio.runs.folder(1) / RUN / "recipe.json"
    while not config.is_file():
        time.sleep(0.02)
    os.kill(worker_of(studio.project.folder), signal.SIGKILL)
    assert wait_for_end(studio.runs) == "failed"
    assert "ended while training" in studio.runs.progress(1).message
    studio.runs.resume(1)
    while "step" not in wait(studio.runs, {"training", "view", "slides"}).progress.message:
        time.sleep(0.02)
    studio.runs.stop(1)
    assert wait_for_end(studio.runs) == "stopped"


def test_a_run_that_fails_says_why(studio: Studio) -> None:
    studio.project.path("1").rename(studio.project.folder / "gone.png")
    studio.runs.train("1")
    assert wait_for_end(studio.runs) == "failed"
    assert "no such slide" in studio.runs.progress(1).message


def test_a_slide_that_moves_away_during_the_training_is_no_success(studio: Studio) -> None:
    studio.runs.steps = 20
    studio.runs.train("1")
    while "step" not in wait(studio.runs, {"training"}).progress.message:
        time.sleep(0.05)
    away = studio.project.path("1").rename(studio.project.folder / "away.png")
    assert wait_for_end(studio.runs) == "failed"
    assert (
        "small.png: the file has disappeared; put it back and press Resume" in studio.runs.progress(1).message
    )
    away.rename(studio.project.path("1"))
    studio.runs.resume(1)
    wait(studio.runs, {"done"})
    assert studio.state("1", "")["results"]


def test_looking_at_a_run_takes_no_lock(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = past_run(studio.runs, 1, RunProgress("training"))
    monkeypatch.setattr(files, "locked", None)
    assert not studio.runs.is_active(1)
    assert studio.runs.progress(1).stage == "failed"
    monkeypatch.undo()
    with locked(folder):
        assert studio.runs.is_active(1)
        assert studio.runs.progress(1).stage == "training"


def test_a_process_that_cannot_work_says_why(studio: Studio) -> None:
    past_run(studio.runs, 1, None)
    (studio.runs.folder(1) / RECIPE).write_text("{")
    past_run(studio.runs, 2, None)
    (studio.runs.folder(2) / "output.txt").mkdir()
    studio.runs.warm_up()
    assert wait_for_end(studio.runs) == "failed"
    assert "did not start: IsADirectoryError" in studio.runs.progress(2).message
    assert [run.recipe.number for run in studio.runs.history()] == [2]  # the other one cannot be read


def test_runs_of_version_0_2_are_shown(studio: Studio) -> None:
    folder = studio.runs.folder(3)
    folder.mkdir(parents=True)
    job = {"number": 3, "slide": "1", "view": [0, 0, 9, 9], "start": "starter", "marks": 20, "steps": 0}
    state = {
        "stage": "done",
        "message": "20 marks",
        "share": 1.0,
        "threshold": 0.3,
        "begun": 1.0,
        "changed": 2.0,
    }
    write_json(folder / "job.json", job)
    write_json(folder / "state.json", state)
    (run,) = studio.runs.history()
    assert (run.recipe.marks, run.progress.stage, run.progress.threshold) == (20, "done", 0.3)


def test_training_starts_from_a_finished_model_however_its_run_ended(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runs, "warm_up", lambda *_: None)
    folders = [past_run(studio.runs, 1), past_run(studio.runs, 2, RunProgress("stopped"))]
    past_run(studio.runs, 3, RunProgress("stopped"))
    for folder in folders:
        (folder / RUN).mkdir()
        (folder / RUN / MODEL).touch()
    assert studio.runs.train("1", start=2).start == str(studio.runs.folder(2) / RUN)
    (studio.runs.folder(4) / RECIPE).unlink()
    assert studio.runs.train("1", start=3).start == str(studio.runs.folder(2) / RUN)
    (studio.runs.folder(4) / RECIPE).unlink()
    assert studio.runs.train("1", start=1).start == str(studio.runs.folder(1) / RUN)


def test_a_process_that_dies_while_predicting_keeps_its_threshold(studio: Studio) -> None:
    past_run(studio.runs, 1, RunProgress("slides", "1 cell so far", threshold=0.07, begun=5.0))
    state = studio.runs.progress(1)
    assert (state.stage, state.threshold, state.begun) == ("failed", 0.07, 5.0)
    assert "ended while predicting" in state.message
    assert studio.threshold("1", "r1") == 0.07


def test_a_process_without_a_job_ends_with_the_studio(studio: Studio) -> None:
    studio.runs.warm_up()
    waiting = studio.runs._worker
    assert waiting is not None
    studio.runs.close()
    assert waiting.poll() is not None


def test_a_process_that_still_suggests_regions_outlives_the_studio(studio: Studio) -> None:
    folder = past_run(studio.runs, 1)
    for is_at_work in (True, False):
        worker = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
        studio.runs._worker = worker
        with locked(folder) if is_at_work else nullcontext():
            studio.runs.close()
        assert (worker.poll() is None) == is_at_work
        worker.kill()
        worker.wait()


def test_a_result_grows_from_the_part_in_view(tmp_path: Path) -> None:
    result = SlideResult(tmp_path / "found", 0.5)
    assert result.version == ""
    result.add_view((0, 0, 100, 100), Cells([[10, 10], [20, 20]], score=[0.9, 0.8], mpp=0.5))
    assert len(result.index()) == 2
    first = result.version
    assert first
    # A part that is looked at later replaces what is there.
    result.add_view((15, 15, 200, 200), Cells([[21, 20], [150, 150]], score=[0.9, 0.8], mpp=0.5))
    assert sorted(result.index().cells.xy[:, 0].tolist()) == [10, 21, 150]
    assert result.version != first


def test_a_growing_result_is_not_read_for_every_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, kept = SlideResult(tmp_path / "found", 0.5), Kept[FoundCells](1)

    def shown() -> FoundCells:
        return kept.get("found", result.index, result.is_shown_by)

    def grow(cells: int) -> None:
        places = [[100 * cells + i, i] for i in range(cells)]
        result.add_view((100 * cells, 0, 100 * cells + 99, 99), Cells(places, score=[0.9] * cells, mpp=0.5))

    grow(1)
    monkeypatch.setattr(slide_results, "_REST", 1e9)
    first = shown()
    grow(2)
    assert shown() is first
    assert len(first) == 1
    kept.clear()
    monkeypatch.setattr(slide_results, "_REST", 0)
    assert (shown().version, len(shown())) == (result.version, 3)
    grow(3)
    assert (shown().version, len(shown())) == (result.version, 6)
