"""Jobs on a Ray cluster: the same news, values and errors as elsewhere."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.conftest import Nodes
from tests.work.test_runner import ends, job

from sparseshot.work import Job
from sparseshot.work.ray_cluster import RayCluster
from sparseshot.work.ray_runner import RayRunner

pytestmark = pytest.mark.xdist_group("ray")


def test_news_values_and_errors(nodes: Nodes, tmp_path: Path) -> None:
    runner = RayRunner(RayCluster(), most=2, memory_bytes=0)
    outputs = {number: tmp_path / f"{number}.txt" for number in (4, 13, 5)}
    updates = list(runner.run(job(number, output) for number, output in outputs.items()))
    assert ends(updates) == {"4": (8, None), "13": (None, "13 brings bad luck"), "5": (10, None)}
    assert outputs[4].read_text() == "doubling 4\n"


def test_a_lost_worker_starts_again_and_is_then_an_error(nodes: Nodes) -> None:
    runner = RayRunner(RayCluster(), memory_bytes=0)
    assert ends(list(runner.run([job(0), job(2)]))) == {
        "0": (None, "its worker or node was lost 4 times"),
        "2": (4, None),
    }


def test_closing_stops_the_jobs(nodes: Nodes, tmp_path: Path) -> None:
    waiting = Job("wait", "tests.work.test_runner:wait", {"path": str(tmp_path / "told")})
    with closing(RayRunner(RayCluster(), memory_bytes=0).run([waiting])) as updates:
        assert any(each.event is not None for each in updates)
