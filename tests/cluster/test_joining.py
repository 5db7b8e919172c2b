"""What is said before anything runs on a cluster."""

import socket
import sys
from pathlib import Path
from threading import Thread

import pytest
from tests.cluster.conftest import Nodes
from tests.images import slide_files
from tests.prediction.networks import random_detector, save

import sparseshot
from sparseshot.cli import main
from sparseshot.errors import ClusterError, OutputError
from sparseshot.work.ray_cluster import Needs, RayCluster, joined

ray_is_there = pytest.mark.xdist_group("ray")


def test_without_ray_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = save(random_detector(threshold=0.8), tmp_path / "run")
    slide = slide_files.write_aperio(tmp_path / "a.svs", slide_files.tissue(64, 64), mpp=0.5)
    assert main(["predict", str(run), str(slide), "--out", str(tmp_path / "out"), "--cluster", "auto"]) == 1
    assert 'pip install "sparseshot[cluster]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def answer_as_redis(server: socket.socket) -> None:
    with server.accept()[0] as connection:
        connection.sendall(b"-ERR unknown command 'PRI'\r\n")


@ray_is_there
def test_no_cluster_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is an extra: sparseshot[cluster]")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))  # nobody listens
        address = f"127.0.0.2:{taken.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match=rf"no Ray cluster at {address} .*`ray start --head`"),
            joined(address),
        ):
            pass
    with socket.create_server(("127.0.0.2", 0)) as other:
        address = f"127.0.0.2:{other.getsockname()[1]}"
        Thread(target=answer_as_redis, args=(other,)).start()
        with pytest.raises(ClusterError, match="something else than Ray answers"), joined(address):
            pass
    for nonsense in ("nowhere", "host:port"):
        with pytest.raises(ClusterError, match="no Ray cluster at"), joined(nonsense):
            pass


@ray_is_there
def test_versions_that_differ(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RayCluster().check(tmp_path)
    assert list(tmp_path.iterdir()) == [], "the probes are removed"
    there = sparseshot.__version__
    monkeypatch.setattr(sparseshot, "__version__", "0.0.1")
    message = rf"the node .* has sparseshot {there}, this machine 0\.0\.1; .* Install the same versions"
    with pytest.raises(ClusterError, match=message):
        RayCluster().check(tmp_path)
    assert list(tmp_path.iterdir()) == []


@ray_is_there
def test_a_folder_that_the_nodes_do_not_share(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    own = Path("/proc/self/cwd/out")  # leads elsewhere in every process
    assert own.is_dir()
    with pytest.raises(OutputError, match=r"/proc/self/cwd/out: is not shared with the node .*; choose"):
        RayCluster().check(own)
    assert list(own.iterdir()) == []
    with pytest.raises(ClusterError, match=r"the node .* does not see /proc/self/cwd/out; put it on"):
        RayCluster().check(tmp_path / "out", [own])


@ray_is_there
def test_what_a_task_takes(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = RayCluster()
    assert cluster.needs() == Needs(cpus=1)
    assert len(cluster.nodes()) == cluster.slots(Needs(cpus=1)) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    with pytest.raises(ClusterError, match=r"64 CPUs and 0 MB; the largest has 1 CPUs\. Set OMP_NUM_THREADS"):
        RayCluster().needs()
    with pytest.raises(ClusterError, match="no node of the cluster has a GPU"):
        RayCluster("cuda:1").needs()
    monkeypatch.delenv("OMP_NUM_THREADS")
    gpus = RayCluster(_nodes=(float("inf"), [{"CPU": 32.0, "GPU": 4.0, "memory": 64e9}, {"CPU": 8.0}]))
    assert gpus.needs(cpus=2, memory_bytes=2 << 30) == Needs(cpus=2, gpus=1, memory_bytes=2 << 30)
    assert gpus.slots(Needs(2, 1)) == 4
    assert gpus.slots(Needs(2, 0)) == 20
