"""Models as ONNX: the same cells through onnxruntime, and a file that explains itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.prediction.agreement import check_same_cells
from tests.prediction.networks import random_detector, save
from torch import Tensor, nn

from sparseshot.cli import main
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.model_files import load_model
from sparseshot.prediction import Model, Throughput, onnx_file, predict_slide, read_prediction
from sparseshot.prediction.onnx_file import write_onnx

SLIDE = SyntheticTissue(seed=4, size_px=(1000, 1000), tissue_fraction=0.9)


class ByOnnxruntime(nn.Module):
    """Runs an ONNX file, of which it knows nothing but its metadata."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        onnxruntime = pytest.importorskip("onnxruntime")
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.metadata = self.session.get_modelmeta().custom_metadata_map
        self.margin_px, self.alignment_px = (
            json.loads(self.metadata[f"sparseshot.{name}"]) for name in ("margin_px", "alignment_px")
        )
        self.place = nn.Parameter(torch.zeros(1))  # a network has a device

    def forward(self, image: Tensor) -> Tensor:
        (output,) = self.session.run(["output"], {"image": image.contiguous().numpy()})
        return torch.from_numpy(output)


@pytest.mark.parametrize("task", ["detect", "segment"])
def test_onnxruntime_finds_the_same_cells(task: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    checkpoint = (
        random_detector(classes=("tumour", "other"), threshold=0.8, colors=("#ff0000", "#00ff00"))
        if task == "detect"
        else load_model("starter-outlines")
    )
    model = Model.load(checkpoint, device="cpu", precision="32", engine="eager")
    written = write_onnx(model, tmp_path / "model.onnx")
    assert written.difference < 1e-4
    other = replace(model, network=ByOnnxruntime(written.path))
    for name, each in (("torch", model), ("onnx", other)):
        predict_slide(SLIDE, each, tmp_path / name, throughput=Throughput(256))
    expected = read_prediction(tmp_path / "torch")
    assert len(expected) > 100
    check_same_cells(read_prediction(tmp_path / "onnx"), expected)


def test_the_file_says_how_to_use_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = save(random_detector(classes=("a", "b"), threshold=0.7, colors=("#ff0000", "#00ff00")), tmp_path)
    path = tmp_path / "model.onnx"
    assert main(["export", str(run), "--onnx", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["opset"] == onnx_file.OPSET
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    told = {
        name.removeprefix("sparseshot."): json.loads(value)
        for name, value in session.get_modelmeta().custom_metadata_map.items()
    }
    assert told["task"] == "detect"
    assert told["classes"] == ["a", "b"]
    assert told["colors"] == ["#ff0000", "#00ff00"]
    assert (told["um_per_px"], told["threshold"], told["stride_px"]) == (0.5, 0.7, 8)
    assert told["offset_channels"] == [3, 4]
    assert "2 / 255" in told["normalisation"]
    assert session.get_inputs()[0].shape[1] == 3
    assert all(isinstance(size, str) for size in session.get_inputs()[0].shape[2:])


def test_without_the_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None)
    model = Model.load(random_detector(), device="cpu", precision="32")
    with pytest.raises(InputError, match=r"sparseshot\[onnx\]"):
        write_onnx(model, tmp_path / "model.onnx")


class Looking(nn.Module):
    """Decides by the pixels, which no export can."""

    margin_px, alignment_px = 0, 1

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        return self.weight * (image[:, :1] if image.max() > 0 else image[:, 1:2])


def test_a_network_that_cannot_be_exported_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    network = Looking()
    checkpoint = Checkpoint(TrainSettings(task="segment"), network.state_dict(), step=1, threshold=0.5)
    model = Model.load(checkpoint, network=network, device="cpu", precision="32")
    with pytest.raises(InputError, match=r"cannot be exported|was not written"):
        write_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
