"""A loss, a data set and a network in a folder outside the package, used by the command line."""

import json
import sys
from pathlib import Path

import pytest
from tests.experiments.tiny_data import TINY_SETTINGS, tiny_tnbc

from sparseshot.cli import main
from sparseshot.errors import CheckpointError
from sparseshot.models.model_files import load_model

MODULE = """
import torch
import torch.nn.functional as F
from torch import nn

from sparseshot.losses import Loss


class HalfWeight(Loss):
    \"\"\"Cross-entropy in which the unmarked counts half.\"\"\"

    def losses(self, locations):
        logits = locations.logits[:, 0]
        each = F.binary_cross_entropy_with_logits(logits, (locations.target > 0).float(), reduction="none")
        return torch.where(locations.annotated, each, 0.5 * each)


class Small(nn.Sequential):
    margin_px, alignment_px = 4, 1


def small(task):
    return Small(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, task.out_channels, 5, padding=2))
"""

CATALOGUE = """
[slides]
mpp = 0.25

[[slides.parts]]
images = "TNBC_NucleiSegmentation/Slide_{patient}/{name}.png"
labels = ["labels_instance/{name}_label.png"]

[slides.splits]
source = "by patient"
names = { train = ["01_*", "02_*"], validation = ["07_*"], test = ["09_*"] }
"""

EXPERIMENT = f"""
{TINY_SETTINGS}
network = "own_parts:small"

[[grid]]
datasets = ["sets.toml:slides"]
tasks = ["segment"]
losses = ["own_parts:HalfWeight", "ce"]
fractions = [0.5]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the three of them and an experiment; leave no trace in this process."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    for name, text in {"own_parts.py": MODULE, "sets.toml": CATALOGUE, "mine.toml": EXPERIMENT}.items():
        (place / name).write_text(text)
    tiny_tnbc(tmp_path / "data")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    return place


def test_an_experiment_uses_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = tmp_path / "data" / "tnbc", tmp_path / "out"
    arguments = [
        "experiment",
        str(folder / "mine.toml"),
        "--root",
        str(root),
        "--out",
        str(out),
        "--jobs",
        "1",
    ]
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    summary = json.loads(capsys.readouterr().out)
    assert summary["scores"].keys() == {
        "slides-segment-own_parts.HalfWeight-0.5-s0",
        "slides-segment-ce-0.5-s0",
    }
    run = out / "runs" / "slides-segment-ce-0.5-s0"
    facts = json.loads((run / "metrics.json").read_text())["machine"]
    assert facts["processor"]
    assert facts["precision"] in {"32", "bf16"}
    assert facts["threads"] >= 1
    model, slide = run / "training", next(root.rglob("09_1.png"))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    asked = [
        "predict",
        str(model),
        str(slide),
        "--mpp",
        "0.25",
        "--everywhere",
        "--out",
        str(tmp_path / "found"),
    ]
    assert main(asked) == 1
    assert "--network own_parts:small" in capsys.readouterr().err
    assert "own_parts" not in sys.modules, "a model must not choose what is imported"
    monkeypatch.chdir(folder)
    assert main([*asked, "--network", "own_parts:small"]) == 0, capsys.readouterr().err
    assert main(["report", str(out)]) == 0
    assert "own\\_parts:HalfWeight" in (out / "report.md").read_text()


def test_train_and_evaluate_use_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    root, run = str(tmp_path / "data" / "tnbc"), str(tmp_path / "run")
    asked = ["--dataset", "sets.toml:slides", "--root", root, "--task", "segment", "--steps", "2"]
    own = ["--network", "own_parts:small"]
    assert main(["train", *asked, *own, "--loss", "own_parts:HalfWeight", "--out", run]) == 0
    facts = json.loads(Path(run, "state.json").read_text())["own"]["circumstances"]
    assert facts["versions"]["sparseshot"]
    assert {"processor", "threads", "precision", "commit"} <= facts.keys()
    assert main(["evaluate", run, *own, "--json"]) == 0
    with pytest.raises(CheckpointError, match="imported only if you name it too"):
        load_model(Path(run)).network()
    assert main(["data", "check", "sets.toml:slides", "--root", root]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("sets.toml:slides", "sets.toml:slide", "no data set 'slide'; did you mean 'slides'"),
        ("sets.toml:slides", "gone.toml:slides", "gone.toml"),
        ("own_parts:HalfWeight", "own_parts:Half", "'Half' in own_parts is missing"),
        ("own_parts:HalfWeight", "own_parts:small", "no subclass"),
    ],
)
def test_a_wrong_name_is_found_before_anything_runs(
    folder: Path, old: str, new: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "mine.toml"
    path.write_text(path.read_text().replace(old, new))
    assert main(["experiment", str(path), "--dry-run"]) != 0
    assert problem in capsys.readouterr().err
