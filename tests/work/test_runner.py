"""Jobs: their news, values and errors are the same wherever they run."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparseshot.errors import InputError
from sparseshot.work import Event, Here, Job, Processes, Report, Runner, Update


def double(number: int, *, report: Report) -> int:
    print("doubling", number, flush=True)
    for step in range(3):
        report(Event("doubling", step + 1, 3, {"number": number}))
    if number == 13:
        raise InputError("13 brings bad luck")
    if number == 0:
        os._exit(7)
    return 2 * number


def wait(path: str, *, report: Report) -> None:
    """Report until somebody stops it, and then say so."""
    try:
        for step in range(10_000):
            report(Event("waiting", step))
            time.sleep(0.01)
    finally:
        Path(path).write_text("stopped")


def job(number: int, output: Path | None = None) -> Job:
    return Job(str(number), "tests.work.test_runner:double", {"number": number}, output)


def ends(updates: list[Update]) -> dict[str, tuple[object, str | None]]:
    return {each.job.name: (each.value, each.error) for each in updates if each.is_end}


@pytest.mark.parametrize("runner", [Here(), Processes(2)], ids=["here", "processes"])
def test_news_values_and_errors(runner: Runner, tmp_path: Path) -> None:
    outputs = {number: tmp_path / f"{number}.txt" for number in (4, 13, 5)}
    taken: list[Job] = []

    def jobs() -> Iterator[Job]:
        for number, output in outputs.items():
            taken.append(job(number, output))
            yield taken[-1]

    updates: list[Update] = []
    for update in runner.run(jobs()):
        updates.append(update)
        assert len(taken) <= len(ends(updates)) + 2, "a job is taken when it can start"
    assert ends(updates) == {"4": (8, None), "13": (None, "13 brings bad luck"), "5": (10, None)}
    events = [each.event for each in updates if each.job.name == "4" and each.event]
    assert events == [Event("doubling", step, 3, {"number": 4}) for step in (1, 2, 3)]
    if isinstance(runner, Processes):
        assert outputs[4].read_text() == "doubling 4\n"


def test_a_process_that_dies_is_an_error_of_its_job_alone(tmp_path: Path) -> None:
    found = ends(list(Processes(1).run([job(0, tmp_path / "0.txt"), job(2)])))
    assert found == {"0": (None, "ended with code 7: doubling 0"), "2": (4, None)}


def test_closing_stops_a_job_here(tmp_path: Path) -> None:
    waiting = Job("wait", "tests.work.test_runner:wait", {"path": str(tmp_path / "told")})
    with closing(Here().run([waiting])) as updates:
        assert next(updates).job is waiting
        assert next(updates).event is not None
    assert (tmp_path / "told").read_text() == "stopped"


PARENT = """
import sys
from sparseshot.work import Job, Processes
for update in Processes(1).run([Job("wait", "tests.work.test_runner:wait", {"path": sys.argv[1]})]):
    print(update.event, flush=True)
"""


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "told")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    assert any("waiting" in line for line in iter(parent.stdout.readline, ""))
    children = subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True, check=False)
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children.stdout.split()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_each_process_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparseshot.work import runner

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(runner, "_cores", lambda: 8)
    assert runner.worker_environment(0, 3)["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert runner.worker_environment(0, 3)["MKL_NUM_THREADS"] == "5"
