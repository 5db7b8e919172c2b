"""Slides on a Ray cluster: the same bytes, whatever is lost."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.conftest import Nodes
from tests.images import slide_files
from tests.listening import LISTENING
from tests.prediction.agreement import content
from tests.prediction.networks import random_detector, save

from sparseshot.cluster.joining import RayCluster
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.files import locked
from sparseshot.images import read_region
from sparseshot.prediction import Model
from sparseshot.prediction.manifest import SHARDS
from sparseshot.prediction.on_cluster import predict_on_cluster
from sparseshot.prediction.slides import Outcome, PredictionOptions, predict_slides
from sparseshot.terminal import Begin, Report, no_progress

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow, pytest.mark.timeout(600)]

TILE_PX, WHOLE_TILES = 64, 30
OPTIONS = PredictionOptions(tile_px=TILE_PX)
SIZES = ((260, 200), (520, 700), (300, 240), (200, 260), (330, 250), (640, 900))
LARGE = 5
"""The slide that most of the tests are about; like the second, it is divided into bands."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(random_detector(threshold=0.8), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, paths = tmp_path_factory.mktemp("slides"), []
    for seed, size in enumerate(SIZES):
        tissue = SyntheticTissue(seed=seed, size_px=size, mpp=0.5, tissue_fraction=1)
        path = folder / f"{seed}.svs"
        paths.append(slide_files.write_aperio(path, read_region(tissue, 0, 0, *size), mpp=0.5))
    return paths


@pytest.fixture(scope="module")
def local(run: Path, slides: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same slides without Ray."""
    out = tmp_path_factory.mktemp("local")
    model = Model.load(run, device="cpu", precision="32")
    assert all(each.is_whole for each in predict_slides(slides, model, out, options=OPTIONS))
    return out


def on_cluster(paths: list[Path], out: Path, *, begin: Begin = no_progress) -> list[Outcome]:
    return predict_on_cluster(
        paths,
        random_detector(threshold=0.8),
        out,
        cluster=RayCluster(),
        load={"precision": "32"},
        options=OPTIONS,
        whole_tiles=WHOLE_TILES,
        begin=begin,
    )


def found_bands(folder: Path) -> dict[str, int]:
    """Return the bands that are found but not settled, each with the inode of its record."""
    return {path.name: path.stat().st_ino for path in folder.glob("cells/[0-9]*.found.json")}


class Disturbed:
    """Disturbs a prediction once some bands are found, and checks that none of these is found again."""

    def __init__(self, folder: Path, disturb: Callable[[], None], *, after: int) -> None:
        self.folder, self.disturb, self.after = folder, disturb, after
        self.kept: dict[str, int] = {}
        self.was_disturbed = False

    def begin(self, title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:
        def report(done: int, total: int | None = None, note: str = "") -> None:
            found = found_bands(self.folder)
            if not self.was_disturbed and len(found) >= self.after:
                self.was_disturbed, self.kept = True, found
                self.disturb()
            for name, inode in found.items():
                assert self.kept.get(name, inode) == inode, f"{name} was found again"

        return report


def test_six_slides_have_the_same_bytes(
    nodes: Nodes, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.svs"
    bad.write_bytes(b"no slide")
    begun: list[tuple[str, int, int | None, str]] = []

    def begin(title: str, total: int | None = None, *, done: int = 0, note: str = "") -> Report:
        return lambda done, total=total, note="": begun.append((title, done, total, note))

    outcomes = on_cluster([*slides[:2], bad, *slides[2:]], tmp_path / "out", begin=begin)
    assert [each.is_whole for each in outcomes] == [True, True, False, True, True, True, True]
    assert "bad.svs: not an image" in str(outcomes[2].error)
    assert content(tmp_path / "out") == content(local)
    tiles = sum(each.summary.tiles for each in outcomes if each.summary)
    assert begun[-2][:3] == ("tiles", tiles, tiles)
    assert begun[-1][:3] == ("slides", 7, 7)
    assert re.fullmatch(r"[23] nodes, \d+\.\d tiles/s, 1 failed", begun[-1][3])
    again = on_cluster(slides, tmp_path / "out")
    assert all(each.summary is not None and each.summary.skipped for each in again)
    assert content(tmp_path / "out") == content(local)


def test_a_removed_node_costs_only_its_bands(
    nodes: Nodes, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    folder = tmp_path / slides[LARGE].name
    disturbed = Disturbed(folder, nodes.remove_without_grace, after=2)
    try:
        (outcome,) = on_cluster([slides[LARGE]], tmp_path, begin=disturbed.begin)
    finally:
        nodes.add()
    assert disturbed.was_disturbed
    assert outcome.error is None
    assert content(folder) == content(local / slides[LARGE].name)


def test_a_killed_worker_costs_only_its_band(
    nodes: Nodes, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    folder = tmp_path / slides[LARGE].name
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 20
        while not killed and time.monotonic() < until:
            for pid in nodes.workers(b"ray::find_in_band")[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    disturbed = Disturbed(folder, kill, after=1)
    (outcome,) = on_cluster([slides[LARGE]], tmp_path, begin=disturbed.begin)
    assert len(killed) == 1
    assert outcome.error is None
    assert content(folder) == content(local / slides[LARGE].name)


def _wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_killed_or_interrupted_caller_resumes(
    nodes: Nodes, run: Path, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", slides[LARGE]
    command = [sys.executable, "-c", LISTENING, "predict", str(run), str(path), "--out", str(out)]
    command += ["--cluster", "auto", "--device", "cpu", "--precision", "32", "--tile-px", str(TILE_PX)]
    for blow, message in ((signal.SIGKILL, []), (signal.SIGINT, ["stopped; the same command resumes"])):
        before = len(found_bands(out / path.name))
        caller = subprocess.Popen(
            command, env=os.environ | {"RAY_ADDRESS": nodes.address}, stderr=subprocess.PIPE, text=True
        )
        try:
            _wait_for((out / path.name / "manifest.json").exists)
            with locked(out / path.name / SHARDS):  # which is needed to finish the slide before the blow
                while len(found_bands(out / path.name)) == before and not nodes.workers(b"ray::settle_slide"):
                    assert caller.poll() is None, caller.communicate()[1]
                    time.sleep(0.01)
                caller.send_signal(blow)
                _, shown = caller.communicate(timeout=60)
                _wait_for(lambda: not nodes.workers(b"ray::find_in_band"))  # no task outlives its caller
                _wait_for(lambda: not nodes.workers(b"ray::settle_slide"))
        finally:
            caller.kill()
        assert caller.returncode == (-signal.SIGKILL if blow == signal.SIGKILL else 130), shown
        own = [line for line in shown.splitlines() if not line.startswith(("slides: ", "tiles: "))]
        # Ray may say that it cannot report a task to a process that leaves; nothing silences that alone.
        assert [line for line in own if "Failed to push error to driver" not in line] == message
    done = len(found_bands(out / path.name))
    disturbed = Disturbed(out / path.name, lambda: None, after=0)
    disturbed.was_disturbed, disturbed.kept = True, found_bands(out / path.name)
    (outcome,) = on_cluster([path], out, begin=disturbed.begin)
    assert outcome.summary is not None
    per_band = -(-SIZES[LARGE][0] // TILE_PX)
    bands = -(-SIZES[LARGE][1] // TILE_PX)
    assert outcome.summary.tiles == per_band * (bands - done), "the others were found before"
    assert content(out / path.name) == content(local / path.name)
