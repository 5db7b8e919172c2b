"""Slides on a Ray cluster: the same bytes, whatever is lost."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.conftest import Nodes
from tests.images import slide_files
from tests.listening import LISTENING
from tests.prediction.agreement import content
from tests.prediction.networks import random_detector, save

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import read_region
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slides import Outcome, PredictRequest, predict_slides
from sparseshot.work import Update
from sparseshot.work.ray_cluster import RayCluster

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow, pytest.mark.timeout(600)]

TILE_PX = 64
SIZES = ((260, 200), (520, 700), (300, 240), (200, 260), (330, 250), (640, 900))
LARGE = 5
"""The slide that most of the tests are about, with 14 shards."""


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
    assert all(each.is_whole for each in predict_slides(slides, requested(run), out))
    return out


def requested(run: Path) -> PredictRequest:
    return PredictRequest(str(run), device="cpu", precision="32", tile_px=TILE_PX)


OnCluster = Callable[..., list[Outcome]]


@pytest.fixture
def on_cluster(run: Path) -> OnCluster:
    def predict(
        paths: list[Path], out: Path, show: Callable[[Update], None] = lambda _: None
    ) -> list[Outcome]:
        return predict_slides(paths, requested(run), out, cluster=RayCluster(), show=show)

    return predict


def finished_shards(folder: Path) -> dict[str, str]:
    """Return the shards that the manifest of a folder names, each with the hash of its bytes."""
    manifest = Manifest.load(folder)
    return {} if manifest is None else {each.file.name: each.file.sha256 for each in manifest.shards}


@contextmanager
def disturbed(folder: Path, disturb: Callable[[], None]) -> Iterator[None]:
    """Disturb a prediction once it has finished two shards of a slide."""

    def wait() -> None:
        _wait_for(lambda: len(finished_shards(folder)) >= 2)
        disturb()

    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(wait)
        yield
        waiting.result()


def test_six_slides_have_the_same_bytes(
    nodes: Nodes, on_cluster: OnCluster, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.svs"
    bad.write_bytes(b"no slide")
    updates: list[Update] = []
    outcomes = on_cluster([*slides[:2], bad, *slides[2:]], tmp_path / "out", show=updates.append)
    assert [each.is_whole for each in outcomes] == [True, True, False, True, True, True, True]
    assert "bad.svs: not an image" in str(outcomes[2].error)
    assert content(tmp_path / "out") == content(local)
    assert sum(update.is_end for update in updates) == 7
    assert any(update.event and update.event.stage == "predicting" for update in updates)
    again = on_cluster(slides, tmp_path / "out")
    assert all(each.summary is not None and each.summary.skipped for each in again)
    assert content(tmp_path / "out") == content(local)


def test_slides_of_one_name_have_folders_of_their_own(
    nodes: Nodes, on_cluster: OnCluster, slides: list[Path], tmp_path: Path
) -> None:
    paths = [tmp_path / folder / "same.svs" for folder in "ab"]
    for path, source in zip(paths, slides, strict=False):
        path.parent.mkdir()
        shutil.copy(source, path)
    outcomes = on_cluster(paths, tmp_path / "out")
    folders = [each.summary.folder.name for each in outcomes if each.summary]
    assert folders[0] == "same.svs"
    assert re.fullmatch(r"same\.svs-[0-9a-f]{12}", folders[1])


def test_a_killed_worker_costs_only_unfinished_shards(
    nodes: Nodes, on_cluster: OnCluster, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        (worker,) = nodes.workers(b"ray::run_job")
        os.kill(worker, signal.SIGKILL)

    folder = tmp_path / slides[LARGE].name
    with disturbed(folder, kill):
        (outcome,) = on_cluster([slides[LARGE]], tmp_path)
    assert outcome.error is None
    assert outcome.summary is not None
    assert outcome.summary.tiles < tiles_of(LARGE), "the others were found before"
    assert content(folder) == content(local / slides[LARGE].name)


def tiles_of(slide: int) -> int:
    width, height = SIZES[slide]
    return -(-width // TILE_PX) * -(-height // TILE_PX)


def test_a_removed_node_is_no_error(
    nodes: Nodes, on_cluster: OnCluster, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    folder = tmp_path / slides[LARGE].name
    try:
        with disturbed(folder, nodes.remove_without_grace):
            outcomes = on_cluster(slides, tmp_path)
    finally:
        nodes.add()
    assert [each.error for each in outcomes] == [None] * len(slides)
    assert content(tmp_path) == content(local)


def _wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_killed_or_interrupted_caller_resumes(
    nodes: Nodes, run: Path, slides: list[Path], local: Path, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", slides[LARGE]
    command = [sys.executable, "-c", LISTENING, "predict", str(run), str(path), "--out", str(out)]
    command += ["--cluster", "auto", "--device", "cpu", "--precision", "32", "--tile-px", str(TILE_PX)]
    done: dict[str, str] = {}
    for blow, message in ((signal.SIGKILL, []), (signal.SIGINT, ["stopped; the same command resumes"])):
        caller = subprocess.Popen(
            command, env=os.environ | {"RAY_ADDRESS": nodes.address}, stderr=subprocess.PIPE, text=True
        )
        try:
            while len(finished_shards(out / path.name)) <= len(done):
                assert caller.poll() is None, caller.communicate()[1]
                time.sleep(0.002)
            caller.send_signal(blow)
            _, shown = caller.communicate(timeout=60)
            _wait_for(lambda: not nodes.workers(b"ray::run_job"))  # no task outlives its caller
        finally:
            caller.kill()
        assert caller.returncode == (-signal.SIGKILL if blow == signal.SIGKILL else 130), shown
        own = [line for line in shown.splitlines() if not line.startswith("slides: ")]
        # Ray may say that it cannot report a task to a process that leaves; nothing silences that alone.
        assert [line for line in own if "Failed to push error to driver" not in line] == message
        after = finished_shards(out / path.name)
        assert done.items() <= after.items()
        done = after
    (outcome,) = predict_slides([path], requested(run), out, cluster=RayCluster())
    assert outcome.summary is not None
    assert outcome.summary.tiles == tiles_of(LARGE) - len(done) * -(-SIZES[LARGE][0] // TILE_PX)
    assert content(out / path.name) == content(local / path.name)
