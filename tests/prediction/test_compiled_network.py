"""Engines: the same cells by another way, recorded, and chosen without harm."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.prediction.agreement import check_same_cells
from tests.prediction.networks import random_detector
from tests.prediction.test_predict import as_of_0_2_0
from torch import Tensor, nn

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError, OutputError
from sparseshot.images.slide import Grid
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.model_files import load_model
from sparseshot.prediction import Model, Throughput, predict_slide, read_prediction
from sparseshot.prediction import compiled_network as engines
from sparseshot.prediction.manifest import MANIFEST, Manifest

SLIDE = SyntheticTissue(seed=4, size_px=(1000, 1000), tissue_fraction=0.9)
SMALL, LARGE = Grid(512, 512, 1.0, 0.5), Grid(40_000, 40_000, 1.0, 0.5)

DEPRECATED = pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
"""What torch.compile uses in PyTorch itself."""


@pytest.fixture(scope="module")
def detector() -> Checkpoint:
    return random_detector(classes=("tumour", "other"), threshold=0.8)


def load(checkpoint: Checkpoint, engine: engines.EngineName) -> Model:
    return Model.load(checkpoint, device="cpu", precision="32", engine=engine)


def recorded(folder: Path) -> str:
    return str(json.loads((folder / "recipe.json").read_text())["engine"])


@pytest.mark.parametrize("task", ["detect", "segment"])
def test_openvino_finds_the_same_cells(detector: Checkpoint, task: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    checkpoint = detector if task == "detect" else load_model("starter-outlines")
    for engine in ("eager", "openvino"):
        predict_slide(SLIDE, load(checkpoint, engine), tmp_path / engine, throughput=Throughput(256))
        assert recorded(tmp_path / engine) == engine
    eager, openvino = (read_prediction(tmp_path / engine) for engine in ("eager", "openvino"))
    assert len(eager) > 100
    check_same_cells(openvino, eager)


def test_released_memory_is_taken_again(detector: Checkpoint) -> None:
    pytest.importorskip("openvino")
    model = Model.load(detector, device="cpu", engine="openvino", precision="32")
    images = torch.randint(0, 256, (1, 64, 64, 3), generator=torch.Generator().manual_seed(0)).byte().numpy()
    before = model(images).clone()
    model.release()
    assert torch.equal(model(images), before)


def test_auto_takes_openvino_for_large_slides_only(detector: Checkpoint) -> None:
    pytest.importorskip("openvino")
    model = load(detector, "auto")
    assert model.on(SMALL).engine == "eager"
    assert model.on(LARGE).engine == "openvino"
    assert model.on(LARGE, recorded="eager").engine == "eager"
    assert load(detector, "eager").on(LARGE).engine == "eager"


def test_without_openvino_auto_is_eager(detector: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert load(detector, "auto").on(LARGE).engine == "eager"
    with pytest.raises(InputError, match=r"sparseshot\[openvino\]"):
        load(detector, "openvino").on(SMALL)


class Undecided(nn.Module):
    """Does something else with light images, which a trace of a dark one cannot know."""

    margin_px, alignment_px = 0, 1

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        light = image.mean(dim=1, keepdim=True)
        return self.weight * (light if image.max() < 0 else 5 - light)


def test_a_network_that_openvino_gets_wrong_runs_eagerly() -> None:
    pytest.importorskip("openvino")
    network = Undecided()
    checkpoint = Checkpoint(TrainSettings(task="segment"), network.state_dict(), step=1, threshold=0.5)
    model = Model.load(checkpoint, network=network, device="cpu", precision="32")
    assert model.on(LARGE).engine == "eager"
    with pytest.raises(InputError, match="--engine eager"):
        replace(model, engine="openvino").on(LARGE)


@DEPRECATED
def test_a_result_keeps_its_engine(
    detector: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slide"
    predict_slide(SLIDE, load(detector, "eager"), folder)
    monkeypatch.setattr(engines, "WORTHWHILE_PX", 1)
    assert predict_slide(SLIDE, load(detector, "auto"), folder).skipped
    with pytest.raises(OutputError, match="engine 'eager' instead of 'openvino'"):
        predict_slide(SLIDE, load(detector, "openvino"), folder)


def test_a_manifest_without_an_engine_is_of_pytorch(detector: Checkpoint, tmp_path: Path) -> None:
    folder = tmp_path / "slide"
    predict_slide(SLIDE, load(detector, "eager"), folder)
    as_of_0_2_0(folder)
    path = folder / MANIFEST
    content = json.loads(path.read_text())
    del content["identity"]["engine"]
    path.write_text(json.dumps(content))
    manifest = Manifest.load(folder)
    assert manifest is not None
    assert manifest.identity["engine"] == "eager"
    assert predict_slide(SLIDE, load(detector, "auto"), folder).skipped


def test_openvino_does_not_run_elsewhere() -> None:
    with pytest.raises(InputError, match="--device cpu"):
        engines.compiled_network(nn.Conv2d(3, 1, 1, device="meta"), precision="32")
