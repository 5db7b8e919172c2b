from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.prediction.networks import random_detector

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError, OutputError
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.kinds import KindHead, MarkedCells, rekind
from sparseshot.prediction import (
    Model,
    Throughput,
    found_with_features,
    predict_slide,
    read_prediction,
    shards,
)
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.predict import rekind_slide
from sparseshot.work import Event

SLIDE = SyntheticTissue(seed=4, size_px=(700, 900), tissue_fraction=0.7)
SMALL = Throughput(64, threads=1)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return random_detector(threshold=0.7, kind_features=6, width=4)


def loaded(checkpoint: Checkpoint, threshold: float | None = None) -> Model:
    return Model.load(checkpoint, threshold=threshold, device="cpu", precision="32")


def files(folder: Path) -> dict[str, bytes]:
    kept = ("cells/*.parquet", "cells/*.npy", "qupath.zip", "summary.json", "density.ome.tif")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for each in kept for path in folder.glob(each)
    }


@pytest.fixture(scope="module")
def result(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("result") / "slide"
    predict_slide(SLIDE, loaded(checkpoint), folder, throughput=SMALL, features=True)
    return folder


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.rglob("*"):
        target = to / path.relative_to(folder)
        target.mkdir(exist_ok=True) if path.is_dir() else target.write_bytes(path.read_bytes())
    return to


def is_result_of(folder: Path, plain: Path) -> bool:
    """Whether the results are the same, whatever is kept beside one of them."""
    own, expected = files(folder), files(plain)
    return all(own[name] == expected[name] for name in expected)


def test_features_change_nothing_else(checkpoint: Checkpoint, result: Path, tmp_path: Path) -> None:
    predict_slide(SLIDE, loaded(checkpoint), tmp_path / "plain", throughput=SMALL)
    assert is_result_of(result, tmp_path / "plain")
    cells, features = found_with_features(result)
    np.testing.assert_array_equal(cells.xy, read_prediction(result).xy)
    assert features.dtype == np.float16
    assert features.shape == (len(cells), 6)
    every, _ = found_with_features(result, threshold=0)
    assert len(every) > len(cells)


def test_another_threshold_needs_no_network(checkpoint: Checkpoint, result: Path, tmp_path: Path) -> None:
    folder = copied(result, tmp_path / "copy")
    for threshold in (0.5, 0.9, 0.7):
        summary = predict_slide(SLIDE, loaded(checkpoint, threshold), folder, throughput=SMALL)
        plain = tmp_path / f"{threshold}"
        predict_slide(SLIDE, loaded(checkpoint, threshold), plain, throughput=SMALL)
        assert summary.tiles == 0
        assert is_result_of(folder, plain)
    assert files(folder) == files(result)
    with pytest.raises(OutputError, match=r"lowest_score 0\.35 instead of 0.15"):
        predict_slide(SLIDE, loaded(checkpoint, 0.3), folder, throughput=SMALL)


def marks_on(cells: Cells) -> Cells:
    rows = np.arange(40) * (len(cells) // 40)
    return Cells(
        cells.xy[rows] + 1,
        classes=("tumour", "lymphocyte"),
        label=np.arange(40) % 2,
        mpp=SLIDE.mpp,
        colors=[(1, 2, 3), (4, 5, 6)],
    )


@pytest.mark.filterwarnings("ignore::sparseshot.errors.TrainingWarning")
def test_other_kinds_need_no_network(checkpoint: Checkpoint, result: Path, tmp_path: Path) -> None:
    folder, model = copied(result, tmp_path / "copy"), loaded(checkpoint)
    found, features = found_with_features(folder)
    marks = marks_on(found)
    head = MarkedCells.of(found, marks).learn(features)
    summary = rekind_slide(SLIDE, model, folder, head)
    cells, expected = read_prediction(folder), rekind(found, features, marks)
    assert summary.tiles == 0
    assert summary.counts == cells.counts() == expected.counts()
    np.testing.assert_array_equal(cells.label, expected.label)
    assert cells.colors == ((128, 128, 128), (1, 2, 3), (4, 5, 6))
    assert "Probability tumour" in cells.measurements
    assert predict_slide(SLIDE, model, folder, throughput=SMALL).skipped  # the kinds stay
    higher = predict_slide(SLIDE, loaded(checkpoint, 0.9), folder, throughput=SMALL)
    assert higher.counts.keys() == expected.counts().keys()
    assert sum(higher.counts.values()) < len(cells)
    predict_slide(SLIDE, model, folder, throughput=SMALL, force=True)
    assert files(folder) == files(result)
    other = replace(model, fingerprint="another")
    with pytest.raises(InputError, match="another model found these cells"):
        rekind_slide(SLIDE, other, folder, head)


def test_killed_at_any_moment_nothing_is_lost(
    checkpoint: Checkpoint, result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: Event) -> None:
        if event.done > 20:
            raise KeyboardInterrupt

    model, folder = loaded(checkpoint), tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        predict_slide(SLIDE, model, folder, throughput=SMALL, features=True, report=stop)
    predict_slide(SLIDE, model, folder, throughput=SMALL)  # what was asked for at first is kept up
    assert files(folder) == files(result)

    # While it is made anew of what is kept.
    def killed(*_: object, **__: object) -> Cells:
        raise KeyboardInterrupt

    head = KindHead(("Other", "a"), np.eye(2, 6, dtype="f4"), np.zeros(2, "f4"), ("#000000", "#ffffff"))
    for name in ("write_cells", "kept"):
        with monkeypatch.context() as patched:
            patched.setattr(shards, name, killed)
            with pytest.raises(KeyboardInterrupt):
                rekind_slide(SLIDE, model, folder, head)
        manifest = Manifest.load(folder)
        assert manifest is not None
        assert manifest.keeps_all
    summary = predict_slide(SLIDE, model, folder, throughput=SMALL)
    assert summary.tiles == 0
    assert summary.counts.keys() == {"Other", "a"}


def test_kinds_by_the_cells_around_do_not_depend_on_bands_or_kills(
    checkpoint: Checkpoint, result: Path, tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).normal(size=(2, 12)).astype("f4")
    head = KindHead(("Other", "a"), weight, np.zeros(2, "f4"), looks_around=True)
    model = loaded(replace(checkpoint, kinds=head))
    predict_slide(SLIDE, model, tmp_path / "plain", throughput=SMALL)
    cells = read_prediction(tmp_path / "plain")
    found, features = found_with_features(result)
    np.testing.assert_array_equal(cells.label, head.assign(found, features).label)
    assert 0 < cells.label.sum() < len(cells)
    assert not list((tmp_path / "plain").glob("cells/*.npy"))

    def stop(event: Event) -> None:
        if event.done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_slide(SLIDE, model, tmp_path / "killed", throughput=SMALL, report=stop)
    predict_slide(SLIDE, model, tmp_path / "killed", throughput=SMALL)
    assert files(tmp_path / "killed") == files(tmp_path / "plain")
    predict_slide(SLIDE, model, tmp_path / "kept", throughput=SMALL, features=True)
    assert is_result_of(tmp_path / "kept", tmp_path / "plain")


def test_damaged_features_are_made_again(checkpoint: Checkpoint, result: Path, tmp_path: Path) -> None:
    folder = copied(result, tmp_path / "copy")
    (folder / "cells/00002.features.npy").write_bytes(b"")
    predict_slide(SLIDE, loaded(checkpoint), folder, throughput=SMALL)
    assert files(folder) == files(result)


def test_a_model_without_features_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no features"):
        predict_slide(SLIDE, loaded(random_detector()), tmp_path / "out", features=True)
