"""Training on two machines: two networks with an address each, or loopback where that cannot be had."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.experiments.tiny_data import TINY_SETTINGS, own_images
from tests.forked import side_by_side
from tests.training.blobs import saying, tiny_request

from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.device import make_fabric
from sparseshot.training import runs
from sparseshot.training.annotated import TrainingData


def choose_apart(folder: Path) -> None:
    """Train for as many steps as there is time for, which each process measures otherwise."""
    fabric, said = make_fabric("32", device="cpu"), list[str]()

    def timed(*_: object) -> int:
        time.sleep(1)  # as long as the other process may start later
        return 3 + fabric.global_rank

    runs.steps_in = timed  # type: ignore[assignment]
    data = TrainingData(pairs=((folder / "0.png", folder / "0.geojson"),), mpp=0.25)
    config = tiny_request(None, steps=None, mpp=0.25)
    model = runs.train_run(config, data, folder / "run", minutes=1, fabric=fabric, report=saying(said))
    assert model.step == model.config.steps == 3
    (folder / f"rank {fabric.global_rank}.txt").write_text(" ".join(said))


def ip(*words: str) -> bool:
    program = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if program is None:
        return False
    return subprocess.run([program, *words], check=False, capture_output=True).returncode == 0


@contextmanager
def two_machines() -> Iterator[list[tuple[list[str], str, str]]]:
    """Yield for each machine how a command is begun on it, its address and its network card."""
    names, cards = (
        [f"sparse{os.getpid()}{side}" for side in "ab"],
        [f"s{os.getpid() % 10**6}{s}" for s in "ab"],
    )
    machines = []
    try:
        apart = all(ip("netns", "add", name) for name in names)
        apart = apart and ip("link", "add", cards[0], "type", "veth", "peer", "name", cards[1])
        for number, (name, card) in enumerate(zip(names, cards, strict=True)):
            address = f"10.77.0.{number + 1}"
            apart = (
                apart
                and ip("link", "set", card, "netns", name)
                and ip("-n", name, "address", "add", f"{address}/24", "dev", card)
                and ip("-n", name, "link", "set", card, "up")
                and ip("-n", name, "link", "set", "lo", "up")
            )
            machines.append((["ip", "netns", "exec", name], address, card))
        yield machines if apart else [([], "127.0.0.1", "lo")] * 2
    finally:
        for name in names:
            ip("netns", "delete", name)


@pytest.mark.slow
def test_two_machines_train_one_model(tmp_path: Path) -> None:
    own_images(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY_SETTINGS.replace("[settings]", ""))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    train = ["sparseshot", "train", "--pairs", "train.csv", "--task", "segment", "--mpp", "0.25"]
    train += ["--config", "tiny.toml", "--device", "cpu", "--precision", "32", "--from", "scratch"]
    with two_machines() as machines:
        started = []
        for rank, (begin, _, card) in enumerate(machines):
            where = ["--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"]
            where += ["--master-addr", machines[0][1], "--master-port", str(port)]
            command = [
                *begin,
                sys.executable,
                "-m",
                "torch.distributed.run",
                *where,
                "-m",
                *train,
                "--out",
                "run",
            ]
            started.append(
                subprocess.Popen(
                    command,
                    cwd=tmp_path,
                    env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": card},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        try:
            said = [each.communicate(timeout=240)[0] for each in started]
        finally:
            for each in started:
                each.kill()
    assert [each.returncode for each in started] == [0, 0], "\n".join(said)[-3000:]
    assert Checkpoint.load(tmp_path / "run" / "model.pt").step == 8


@pytest.mark.slow
def test_one_process_chooses_for_all(tmp_path: Path) -> None:
    own_images(tmp_path)
    side_by_side(choose_apart, tmp_path)
    assert "3 steps" in (tmp_path / "rank 0.txt").read_text()
    assert (tmp_path / "rank 1.txt").read_text() == ""
