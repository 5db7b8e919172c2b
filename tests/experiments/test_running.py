"""Missing runs are run, each in its own process, and survive interruptions."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.experiments.made_results import metrics_of, plausible
from tests.experiments.tiny_data import experiment_text, own_experiment, tiny_tnbc

from sparseshot.errors import DataNotFoundError, FormatError, InputError, OutputError
from sparseshot.experiments import Results, read_experiment, run_experiment, running
from sparseshot.experiments.experiment import Method, Run, Subject
from sparseshot.experiments.results import Result, run_folder
from sparseshot.experiments.running import choose, is_finished
from sparseshot.files import locked, make_folder, write_json
from sparseshot.work import WorkFolder
from sparseshot.work.runner import worker_environment


class Sweep:
    """An experiment with made workers."""

    def __init__(self, tmp_path: Path, **grid: object) -> None:
        self.root = tiny_tnbc(tmp_path / "data")
        self.out, self.made = tmp_path / "out", tmp_path / "made"
        self.path = tmp_path / "mine.toml"
        self.path.write_text(experiment_text(**grid))
        self.made.mkdir()
        for run in read_experiment(self.path).runs:
            write_json(self.made / f"{run.name}.json", metrics_of(run, *plausible(run)))
        self.lines: list[str] = []

    def run(self, **options: object) -> list[Result]:
        self.lines = []
        with patch.object(running, "PERFORM", "tests.experiments.made_worker:work"):
            return run_experiment(
                read_experiment(self.path),
                root=self.root,
                out=self.out,
                say=self.lines.append,
                **options,  # type: ignore[arg-type]  # a test names what it wants
            )

    def starts(self, name: str) -> list[tuple[int, str]]:
        path = run_folder(self.out, name) / "starts.txt"
        if not path.is_file():
            return []
        return [(int(pid), threads) for pid, threads in map(str.split, path.read_text().splitlines())]


def ran(results: list[Result]) -> int:
    return sum(result.ran for result in results)


def failed(results: list[Result]) -> list[Result]:
    return [result for result in results if result.state == "failed"]


def test_all_runs_are_done_in_order_and_a_second_call_does_nothing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, fractions=[0.5, 1.0])
    results = sweep.run(jobs=1)
    assert ran(results) == 4
    assert sweep.lines[0] == "0 of 4 runs are done, 4 to do"
    assert re.match(
        r"\[1/4\] tnbc-segment-ece-1-s0: Dice 0\.\d+ at 0\.5, 0\.\d+ calibrated, \d+ s$", sweep.lines[1]
    )
    assert sweep.lines[2].startswith("[2/4] tnbc-segment-ce-1-s0: ")
    assert [result.state for result in results] == ["done"] * 4
    again = sweep.run(jobs=1)
    assert ran(again) == 0
    assert sweep.lines == ["4 of 4 runs are done, 0 to do"]
    assert [result.score("half") for result in again] == [result.score("half") for result in results]


def test_only_the_chosen_runs_are_run_and_the_others_are_missing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    assert ran(sweep.run(only=["*-ce-*"])) == 1
    states = {name: result.state for name, result in Results.read(sweep.out).results.items()}
    assert states == {"tnbc-segment-ece-0.5-s0": "missing", "tnbc-segment-ce-0.5-s0": "done"}
    with pytest.raises(InputError, match=r"no run matches --only 'monuseg\*'; .*tnbc-segment-ece"):
        choose(read_experiment(sweep.path).runs, ["monuseg*"])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("focal", "ended with code 1: no luck"),
        ("huber", "killed by the system, probably out of memory"),
        ("elr", "mine.png: bad image"),
    ],
)
def test_a_failed_run_is_recorded_and_the_others_continue(tmp_path: Path, loss: str, message: str) -> None:
    sweep = Sweep(tmp_path, losses=[loss, "ce"])
    results = sweep.run(jobs=1)
    assert [result.state for result in results] == ["failed", "done"]
    assert [result.run.method.name for result in failed(results)] == [loss]
    assert str(failed(results)[0].failure).startswith(message)
    assert ran(sweep.run()) == 1, "a failed run is tried again"


def test_a_run_that_failed_and_then_succeeds_has_no_error_left(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, losses=["ce"])
    folder = run_folder(sweep.out, "tnbc-segment-ce-0.5-s0")
    sweep.run()
    (folder / "metrics.json").unlink()
    WorkFolder.open(folder).save(error="disk full", finished=False)
    assert Results.read(sweep.out).in_state("failed")
    assert failed(sweep.run()) == []
    assert WorkFolder.open(folder).state.error is None


def test_runs_side_by_side_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("sparseshot.work.runner._cores", lambda: 8)
    assert worker_environment(0, 8)["OMP_NUM_THREADS"] == "1"
    assert worker_environment(0, 3)["NUMBA_NUM_THREADS"] == "2"
    assert worker_environment(0, 20)["OMP_NUM_THREADS"] == "1"
    sweep = Sweep(tmp_path)
    sweep.run(jobs=2)
    names = ("tnbc-segment-ece-0.5-s0", "tnbc-segment-ce-0.5-s0")
    assert [sweep.starts(name)[0][1] for name in names] == ["4", "4"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert worker_environment(0, 8)["OMP_NUM_THREADS"] == "3", "an explicit setting is kept"


def test_a_folder_with_other_settings_is_left_alone(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.run()
    sweep.path.write_text(sweep.path.read_text().replace("steps = 8", "steps = 9"))
    with pytest.raises(
        OutputError, match=r"tnbc-segment-ece-0.5-s0: holds a run with settings steps 8 instead of 9; choose"
    ):
        sweep.run()


def test_another_number_of_rounds_is_another_run(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, losses=["ce"])
    sweep.run()
    text = sweep.path.read_text().replace("[[grid]]", "[losses.ce]\nrounds = 2\n[[grid]]")
    sweep.path.write_text(text)
    with pytest.raises(OutputError, match="rounds 1 instead of 2"):
        sweep.run()


def test_other_settings_of_a_run_with_clicks_are_noticed(tmp_path: Path) -> None:
    method = Method("reviewed", "adaptive", policy="review")
    run = Run(Subject("synthetic"), "detect", method, 60, 0, "standard", {"steps": 50})
    folder = run_folder(tmp_path, run.name)
    with WorkFolder.claimed(folder, run.recipe({})):
        pass
    assert not is_finished(run, tmp_path)
    for change, text in (
        ({"settings": {"steps": 500}}, "steps 50 instead of 500"),
        ({"settings": {}}, "steps 50 instead of None"),
        ({"method": replace(method, policy="random")}, "policy 'review' instead of 'random'"),
    ):
        with pytest.raises(OutputError, match=text):
            is_finished(replace(run, **change), tmp_path)


def test_runs_of_an_earlier_version_are_finished_or_begun_again(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, losses=["ce", "ece"])
    for run in read_experiment(sweep.path).runs:
        folder = run_folder(sweep.out, run.name)
        make_folder(folder)
        write_json(folder / "recipe.json", {"request": {}, "settings": {}, "kind": "train"})
        if run.method.name == "ce":
            write_json(folder / "metrics.json", metrics_of(run, 0.5, 0.6))
    assert [result.ran for result in sweep.run()] == [False, True]
    sweep.path.write_text(sweep.path.read_text().replace("steps = 8", "steps = 9"))
    with pytest.raises(OutputError, match="steps 8 instead of 9"):
        sweep.run(only=["*-ce-*"])


def test_titles_may_change(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, losses=["ce"])
    sweep.run()
    sweep.path.write_text(sweep.path.read_text().replace("[[grid]]", '[losses.ce]\ntitle = "CE"\n[[grid]]'))
    assert ran(sweep.run()) == 0


class TestChangedData:
    """A run of the user's own images is not taken for one of other content."""

    @pytest.fixture
    def sweep(self, tmp_path: Path) -> Sweep:
        sweep = Sweep(tmp_path)
        own_experiment(tmp_path)
        for run in read_experiment(sweep.path).runs:
            write_json(sweep.made / f"{run.name}.json", metrics_of(run, *plausible(run)))
        assert ran(sweep.run()) == 2
        assert ran(sweep.run()) == 0
        return sweep

    @pytest.mark.parametrize("file", ["0.geojson", "0.png", "2.geojson"])
    def test_of_a_file(self, sweep: Sweep, file: str) -> None:
        path = sweep.path.parent / "images" / file
        path.write_bytes((path.parent / f"1{path.suffix}").read_bytes())
        with pytest.raises(OutputError, match=rf"files .*{file} '"):
            sweep.run()

    def test_of_the_resolution(self, sweep: Sweep) -> None:
        head, found, tail = sweep.path.read_text().rpartition("mpp = 0.25")
        sweep.path.write_text(head + found.replace("0.25", "0.5") + tail)
        with pytest.raises(OutputError, match=r"mpp 0.25 instead of 0.5"):
            sweep.run()

    def test_but_a_finished_run_needs_no_data(self, sweep: Sweep) -> None:
        shutil.rmtree(sweep.path.parent / "images")
        assert ran(sweep.run()) == 0


@pytest.mark.parametrize("content", ["{", '{"evaluation": {}}', "[]"])
def test_a_run_with_damaged_metrics_is_run_again(tmp_path: Path, content: str) -> None:
    sweep = Sweep(tmp_path, losses=["ce"])
    sweep.run()
    (run_folder(sweep.out, "tnbc-segment-ce-0.5-s0") / "metrics.json").write_text(content)
    results = sweep.run()
    assert (ran(results), failed(results)) == (1, [])


def test_data_is_asked_for_only_while_something_is_missing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.run()
    sweep.root = tmp_path / "gone"
    assert ran(sweep.run()) == 0


def test_an_empty_data_set_stops_before_anything_is_written(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    for path in sweep.root.rglob("*.png"):
        path.unlink()
    with pytest.raises((DataNotFoundError, FormatError), match="no image of TNBC"):
        sweep.run()
    assert not sweep.out.exists()


def test_two_calls_do_not_work_in_one_folder(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.out.mkdir()
    with locked(sweep.out), pytest.raises(OutputError, match="another sparseshot is at work"):
        sweep.run()
    assert ran(sweep.run()) == 2


def test_jobs_below_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jobs is 0"):
        Sweep(tmp_path).run(jobs=0)


CALLER = """
import signal
import sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background without it
sys.path.insert(0, sys.argv[1])
from tests.experiments.test_running import Sweep
sweep = object.__new__(Sweep)
tmp = Path(sys.argv[2])
sweep.lines = []
sweep.root, sweep.out, sweep.made, sweep.path = tmp / "data", tmp / "out", tmp / "made", tmp / "mine.toml"
try:
    sweep.run(jobs=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_experiment_stops_its_workers_and_resumes(
    tmp_path: Path, blow: signal.Signals
) -> None:
    sweep = Sweep(tmp_path, losses=["ce", "oracle", "ece"])
    slow = "tnbc-segment-oracle-0.5-s0"
    repository = str(Path(__file__).parents[2])
    caller = subprocess.Popen([sys.executable, "-c", CALLER, repository, str(tmp_path)])
    try:
        until = time.monotonic() + 120
        folders = [run_folder(sweep.out, run.name) for run in read_experiment(sweep.path).runs]
        while not (sweep.starts(slow) and sum(WorkFolder.open(each).is_finished for each in folders) == 2):
            assert time.monotonic() < until
            assert caller.poll() is None
            time.sleep(0.05)
        os.kill(caller.pid, blow)
        assert caller.wait(30) in {-signal.SIGKILL, 130}
    finally:
        caller.kill()
    worker = sweep.starts(slow)[0][0]
    until = time.monotonic() + 30
    while alive(worker):
        assert time.monotonic() < until, "the worker outlived its parent"
        time.sleep(0.05)
    assert WorkFolder.open(run_folder(sweep.out, slow)).state.error is None, "an interrupted run did not fail"
    (sweep.made / "hurry").touch()
    results = sweep.run()
    assert ran(results) == 1
    assert [result.state for result in results] == ["done"] * 3
    assert len(sweep.starts("tnbc-segment-ce-0.5-s0")) == 1


def test_the_plan_is_kept(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.run()
    assert json.loads((sweep.out / "plans" / "mine.json").read_text())["title"] == "Tiny"
