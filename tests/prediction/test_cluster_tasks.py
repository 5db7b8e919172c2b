"""The tasks of a prediction on a cluster, called one by one in this process."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.images import slide_files
from tests.prediction.agreement import content
from tests.prediction.networks import random_detector

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.files import locked
from sparseshot.images import read_region
from sparseshot.prediction import Model, Throughput, cluster_tasks
from sparseshot.prediction.cluster_tasks import Begun, ClusterWork, begin_slide, find_in_band, settle_slide
from sparseshot.prediction.slide_folder import SlideFolder
from sparseshot.prediction.slides import Outcome, PredictionOptions, predict_slides

OPTIONS = PredictionOptions(tile_px=64, pace=Throughput(threads=1))
SHARED = ("key", [None])


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(random_detector(threshold=0.8), device="cpu", precision="32")


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    tissue = SyntheticTissue(seed=2, size_px=(330, 520), mpp=0.5, tissue_fraction=1)
    return slide_files.write_aperio(tmp_path / "a.svs", read_region(tissue, 0, 0, 330, 520), mpp=0.5)


@pytest.fixture
def work(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterWork:
    """Return what the tasks find here without Ray."""
    work = ClusterWork(
        key="key",
        checkpoint=random_detector(threshold=0.8),
        load={},
        out=tmp_path / "out",
        options=OPTIONS,
        threads=1,
        whole_tiles=10,
    )
    monkeypatch.setattr(cluster_tasks, "_here", cluster_tasks._Here("key", work, model))
    return work


def begun(slide: Path) -> tuple[Path, list[int]]:
    first = begin_slide(*SHARED, slide, frozenset())
    assert first.outcome is None
    assert first.folder is not None
    assert first.bands is not None
    return first.folder, sorted(first.bands)


def test_a_settlement_does_not_trust_a_damaged_shard(
    work: ClusterWork, model: Model, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict_slides([slide], model, tmp_path / "whole", options=OPTIONS)
    folder, bands = begun(slide)
    assert bands == list(range(9))
    assert all(find_in_band(*SHARED, slide, folder, band) is None for band in bands)
    assert begun(slide)[1] == [], "all are found"
    with monkeypatch.context() as patch:
        patch.setattr(SlideFolder, "export", lambda self: 1 / 0)
        assert "ZeroDivisionError" in str(settle_slide(*SHARED, slide, folder).error)
    shards = sorted(folder.glob("cells/00003*.parquet"))
    next(path for path in shards if "found" not in path.name and "undecided" not in path.name).write_bytes(
        b""
    )
    assert begun(slide)[1] == []
    for _ in range(2):  # the second time as if the first worker had been lost before it could answer
        settled = settle_slide(*SHARED, slide, folder)
        assert settled.is_whole
        assert content(tmp_path / "out") == content(tmp_path / "whole")
    again = begin_slide(*SHARED, slide, frozenset()).outcome
    assert again is not None
    assert again.summary is not None
    assert again.summary.skipped


def test_a_damaged_tissue_mask_is_written_anew(work: ClusterWork, slide: Path) -> None:
    folder, bands = begun(slide)
    (mask,) = folder.glob("cells/*.tissue.npz")
    mask.write_bytes(b"damaged")
    assert isinstance(find_in_band(*SHARED, slide, folder, bands[0]), Outcome)
    assert begun(slide) == (folder, bands)
    assert find_in_band(*SHARED, slide, folder, bands[0]) is None


def test_a_band_whose_worker_was_lost_before_it_could_answer_is_not_found_again(
    work: ClusterWork, slide: Path
) -> None:
    folder, bands = begun(slide)
    inodes = []
    for _ in range(2):
        assert find_in_band(*SHARED, slide, folder, bands[0]) is None
        inodes.append({path.name: path.stat().st_ino for path in folder.glob("cells/00000.*")})
    assert len(inodes[0]) == 2
    assert inodes[0] == inodes[1]


def test_a_small_slide_is_done_at_once_and_a_bad_one_fails(
    work: ClusterWork, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_tasks._here, "work", replace(work, whole_tiles=100))
    done = begin_slide(*SHARED, slide, frozenset()).outcome
    assert done is not None
    assert done.is_whole
    slide.write_bytes(b"no slide")
    assert begin_slide(*SHARED, slide, frozenset()) == Begun(
        outcome=Outcome(slide, error=f"{slide}: not an image of a known format; save it as PNG, JPEG or TIFF")
    )


def test_a_folder_that_changed_hands_is_left_alone(
    work: ClusterWork, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = begun(slide)
    other = Model.load(random_detector(threshold=0.8, seed=7), device="cpu", precision="32")
    predict_slides([slide], other, tmp_path / "out", options=replace(OPTIONS, force=True))
    before = content(folder)
    for outcome in (find_in_band(*SHARED, slide, folder, 0), settle_slide(*SHARED, slide, folder)):
        assert isinstance(outcome, Outcome)
        assert "was changed by another sparseshot" in str(outcome.error)
    assert content(folder) == before


def test_the_dead_are_waited_for_but_not_forever(
    work: ClusterWork, slide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_tasks, "_LOCK_SECONDS", 0.1)
    folder, _ = begun(slide)
    with locked(folder):
        outcome = begin_slide(*SHARED, slide, frozenset()).outcome
    assert outcome is not None
    assert "another sparseshot is at work here" in str(outcome.error)
