"""Prediction in 8 bits: nearly the cells of full precision, reproducible, and refused where it cannot run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.prediction.agreement import content
from tests.prediction.networks import random_detector

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError, OutputError
from sparseshot.images.slide import Grid
from sparseshot.metrics import match_cells
from sparseshot.prediction import Model, predict_slide, read_prediction
from sparseshot.prediction import compiled_network as engines
from sparseshot.prediction.manifest import MANIFEST
from sparseshot.training.config import TrainConfig

SLIDE = SyntheticTissue(seed=4, size_px=(1400, 1100), tissue_fraction=0.8)
COUNT_SHARE, F1 = 0.01, 0.99
"""How far the number of cells may be from that of full precision, and the F1 of the cells against it."""


@pytest.fixture
def int8() -> Callable[[str], Model]:
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    return lambda name: Model.load(name, device="cpu", precision="int8")


def recorded(folder: Path) -> tuple[str, str]:
    identity = json.loads((folder / MANIFEST).read_text())["identity"]
    return identity["precision"], identity["engine"]


def predicted(model: Model, folder: Path) -> Cells:
    predict_slide(SLIDE, model, folder, tile_px=512)
    return read_prediction(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["starter", "starter-outlines"])
def test_nearly_the_cells_of_full_precision(name: str, int8: Callable[[str], Model], tmp_path: Path) -> None:
    expected = predicted(Model.load(name, device="cpu", precision="32"), tmp_path / "32")
    cells = predicted(int8(name), tmp_path / "int8")
    assert recorded(tmp_path / "int8") == ("int8", "openvino")
    assert len(expected) > 100
    assert abs(len(cells) - len(expected)) <= COUNT_SHARE * len(expected)
    assert match_cells(expected, cells, radius_um=1.0).counts.f1 >= F1


@pytest.mark.slow
def test_a_resume_keeps_int8_and_gives_the_same_bytes(int8: Callable[[str], Model], tmp_path: Path) -> None:
    model, bands = int8("starter"), 0
    predict_slide(SLIDE, model, tmp_path / "whole", tile_px=256)

    def stop(progress: object) -> None:
        nonlocal bands
        bands = len(json.loads((tmp_path / "parts" / MANIFEST).read_text())["shards"])
        if bands:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_slide(SLIDE, model, tmp_path / "parts", tile_px=256, report=stop)
    assert bands
    with pytest.raises(OutputError, match="another precision: int8 instead of 32"):
        predict_slide(SLIDE, Model.load("starter", device="cpu", precision="32"), tmp_path / "parts")
    engines._compiled.cache_clear()  # as in another process, which calibrates again
    predict_slide(SLIDE, int8("starter"), tmp_path / "parts", tile_px=256)
    assert recorded(tmp_path / "parts") == ("int8", "openvino")
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_nothing_is_printed(int8: Callable[[str], Model], capfd: pytest.CaptureFixture[str]) -> None:
    engines._compiled.cache_clear()
    int8("starter").on(Grid(64, 64, 1.0, 0.5))
    assert capfd.readouterr() == ("", "")


def test_a_network_that_suffers_is_refused(int8: Callable[[str], Model]) -> None:
    """Random weights of four channels lose a tenth of their output and more."""
    model = Model.load(random_detector(), device="cpu", precision="int8")
    with pytest.raises(InputError, match=r"differs by \d\d\.\d%; use --precision 32"):
        model.on(Grid(64, 64, 1.0, 0.5))


@pytest.mark.parametrize("engine", ["eager", "compile"])
def test_another_engine_is_refused(engine: engines.EngineName) -> None:
    with pytest.raises(InputError, match=f"not with --engine {engine}"):
        Model.load("starter", device="cpu", precision="int8", engine=engine)


def test_another_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"not on cuda:0; use --device cpu"):
        engines.int8_engine("auto", torch.device("cuda:0"))


def test_without_nncf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "nncf" else object())
    with pytest.raises(InputError, match=r"int8 needs nncf; pip install 'sparseshot\[int8\]'"):
        Model.load("starter", device="cpu", precision="int8")


def test_training_has_no_int8() -> None:
    with pytest.raises(InputError, match="precision is 'int8'; there are auto, 32, bf16"):
        TrainConfig(precision="int8")  # type: ignore[arg-type]
