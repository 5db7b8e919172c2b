"""Commands on a Ray cluster: the same results as in processes of this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import Nodes
from tests.experiments.test_running import Sweep, failed, ran

from sparseshot.cluster import CommandJob, Executor, LocalProcesses
from sparseshot.cluster.ray_jobs import RayProcesses
from sparseshot.experiments import Results
from sparseshot.experiments.report import make_report, write_report
from sparseshot.work.ray_cluster import RayCluster

pytestmark = pytest.mark.xdist_group("ray")


def report_of(folder: Path, page: Path) -> str:
    write_report(make_report(Results.read(folder)), page)
    return page.with_suffix(".md").read_text()


def test_an_experiment_has_the_same_report(nodes: Nodes, tmp_path: Path) -> None:
    grid = {"losses": ["ce", "ece", "focal"], "fractions": [0.5, 1.0]}
    reports = []
    for name, executor in (("local", None), ("cluster", RayProcesses(RayCluster()))):
        (tmp_path / name).mkdir()
        sweep = Sweep(tmp_path / name, **grid)
        results = sweep.run(executor=executor)
        assert [result.state for result in results].count("done") == 4
        assert len(failed(results)) == 2
        assert str(failed(results)[0].failure) == "WorkerDied: ended with code 1: no luck"
        assert ran(sweep.run(executor=executor, only=["*-ce-*"])) == 0, "it resumes"
        reports.append(report_of(sweep.out, tmp_path / f"{name}.html").replace(str(tmp_path / name), ""))
    assert reports[0] == reports[1]


PROGRAM = "import os, sys; print(os.getcwd(), os.environ['OMP_NUM_THREADS'], flush=True); sys.exit({code})"


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_both_executors_run_jobs_alike(
    where: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    executor: Executor = LocalProcesses(2)
    if where == "cluster":
        request.getfixturevalue("nodes")
        executor = RayProcesses(RayCluster(), most=2)
    jobs = [
        CommandJob(str(code), (sys.executable, "-c", PROGRAM.format(code=code)), tmp_path / f"{code}.txt")
        for code in (0, 3, 0xFE)
    ]
    taken: list[CommandJob] = []

    def taking() -> Iterator[CommandJob]:
        for job in jobs:
            taken.append(job)
            yield job

    codes: dict[str, int] = {}
    for job, seconds, code in executor.run(taking()):
        assert seconds >= 0
        if code is not None:
            codes[job.name] = code
        assert len(taken) <= len(codes) + 2 + (code is not None), "a job is taken when it can start"
    assert codes == {"0": 0, "3": 3, "254": 254}
    assert (tmp_path / "3.txt").read_text() == f"{tmp_path} 1\n"
