"""Model files and starters."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.blobs import tiny_config

from sparseshot.cli import options
from sparseshot.errors import CheckpointError
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, STARTER, STARTER_NAMES, TASKS, TrainSettings
from sparseshot.models.model_files import load_model, load_start, load_starter, save_starter


def random_model(config: TrainSettings, *, seed: int = 3) -> Checkpoint:
    torch.manual_seed(seed)
    return Checkpoint(config, config.make_task().network().state_dict(), 7, threshold=0.4)


@pytest.mark.parametrize("name", STARTER_NAMES)
def test_the_package_has_a_starter_of_each_task(name: str) -> None:
    starter = load_model(name)
    assert starter.config.task == STARTER_NAMES[name]
    assert starter.threshold is not None
    assert 0 < starter.threshold < 1


def test_the_command_line_knows_the_names() -> None:
    assert set(options.STARTERS) == set(STARTER_NAMES)
    assert set(STARTER_NAMES.values()) == set(TASKS)


def test_an_own_run_of_that_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter").mkdir()
    random_model(tiny_config("detect")).save(tmp_path / "starter" / "model.pt")
    assert load_model("starter").config == tiny_config("detect")


def test_what_a_run_starts_from(tmp_path: Path) -> None:
    assert load_start(SCRATCH, "detect") is None
    starter = load_start(STARTER, "segment")
    assert starter is not None
    assert starter.config.task == "segment"
    with pytest.raises(CheckpointError, match="no such run or model to start from"):
        load_start(str(tmp_path / "gone"), "detect")
    with pytest.raises(CheckpointError, match=r"no model\.pt to start from; finish"):
        load_start(str(tmp_path), "detect")


def test_a_starter_is_written_in_half_precision_and_read_back(tmp_path: Path) -> None:
    model = random_model(tiny_config("detect"))
    save_starter(model, tmp_path / "detect.safetensors")
    back = load_starter("detect", path=tmp_path / "detect.safetensors")
    assert (back.config, back.step, back.threshold) == (model.config, model.step, model.threshold)
    for name, weight in model.weights.items():
        torch.testing.assert_close(back.weights[name], weight, rtol=1e-3, atol=1e-4)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    model = random_model(tiny_config("detect"))
    weights = {name: weight for name, weight in model.weights.items() if "head" not in name}
    save_starter(replace(model, weights=weights), tmp_path / "detect.safetensors")
    with pytest.raises(CheckpointError, match="another network"):
        load_starter("detect", path=tmp_path / "detect.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes(b"\x10" * 40)
    with pytest.raises(CheckpointError, match="cannot be read as a starter"):
        load_starter("detect", path=tmp_path / "damaged.safetensors")


def test_a_starter_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseshot.models.model_files._VERSION", "0")
    save_starter(random_model(tiny_config("detect")), tmp_path / "detect.safetensors")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="not a starter of this version"):
        load_starter("detect", path=tmp_path / "detect.safetensors")


@pytest.mark.parametrize(
    ("own", "asked", "served"),
    [
        (("tumour",), ("immune",), False),
        (("tumour",), ("tumour",), True),
        ((), ("immune",), True),
        (("tumour",), ("cell",), True),
        (("a", "b"), ("a", "b"), True),
        (("a", "b"), ("b", "a"), False),
        (("a", "b"), ("a",), False),
    ],
)
def test_which_classes_a_last_layer_serves(
    own: tuple[str, ...], asked: tuple[str, ...], served: bool
) -> None:
    assert random_model(tiny_config("detect", classes=own)).has_classes(asked) is served
