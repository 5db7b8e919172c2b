"""What a run starts from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.blobs import tiny_config

from sparseshot.cli import options
from sparseshot.errors import CheckpointError, SparseshotError, TrainingWarning
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, STARTER_NAMES, TrainConfig
from sparseshot.models.model_files import load_model, load_starter, save_starter
from sparseshot.models.tasks import TASKS
from sparseshot.training.starting import (
    at_resolution_of,
    begin_from,
    find_start,
    fine_tune,
    has_same_classes,
    steps_for,
    steps_in,
)


def random_model(config: TrainConfig, *, seed: int = 3) -> Checkpoint:
    torch.manual_seed(seed)
    return Checkpoint(config, config.make_task().network().state_dict(), 7, threshold=0.4)


def saved(config: TrainConfig, folder: Path) -> Path:
    random_model(config).save(folder / "model.pt")
    return folder


@pytest.mark.parametrize("name", STARTER_NAMES)
def test_the_package_has_a_starter_of_each_task(name: str) -> None:
    starter = load_model(name)
    assert starter.config.task == STARTER_NAMES[name]
    assert starter.threshold is not None
    assert 0 < starter.threshold < 1
    start, sentence = find_start(TrainConfig(task=starter.config.task))
    assert start is not None
    assert sentence == "from the starter"


def test_the_command_line_knows_the_names() -> None:
    assert set(options.STARTERS) == set(STARTER_NAMES)
    assert set(STARTER_NAMES.values()) == set(TASKS)


def test_an_own_run_of_that_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter").mkdir()
    saved(tiny_config("detect"), tmp_path / "starter")
    assert load_model("starter").config == tiny_config("detect")


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


def test_another_size_of_the_network_starts_from_scratch_and_says_so() -> None:
    start, sentence = find_start(TrainConfig(task="detect", width=8))
    assert start is None
    assert "random weights" in sentence
    assert "size" in sentence
    assert find_start(TrainConfig(task="detect", start=SCRATCH)) == (None, "from random weights")


def test_a_run_continues_from_its_parent(tmp_path: Path) -> None:
    config = tiny_config("detect", start=str(saved(tiny_config("detect"), tmp_path)))
    start, sentence = find_start(config)
    assert start is not None
    assert sentence == f"from {tmp_path}"
    network = config.make_task().network()
    begin_from(start, network, config)
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, start.weights[name]), name


def test_other_classes_get_a_new_last_layer(tmp_path: Path) -> None:
    parent = saved(tiny_config("detect"), tmp_path)
    config = tiny_config("detect", start=str(parent), classes=("a", "b"))
    start, sentence = find_start(config)
    assert start is not None
    assert "a new last layer for the classes a, b" in sentence
    network = config.make_task().network()
    fresh = {name: weight.clone() for name, weight in network.state_dict().items()}
    begin_from(start, network, config)
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, fresh[name] if name.startswith("head") else start.weights[name]), name


@pytest.mark.parametrize(
    ("parent", "own", "kept"),
    [
        ("tumour", "immune", False),
        ("tumour", "tumour", True),
        ("cell", "immune", True),
        ("tumour", "cell", True),
    ],
)
def test_another_single_class_gets_a_new_last_layer(
    parent: str, own: str, kept: bool, tmp_path: Path
) -> None:
    saved(tiny_config("detect", classes=(parent,)), tmp_path)
    config = tiny_config("detect", start=str(tmp_path), classes=(own,))
    start, sentence = find_start(config)
    assert start is not None
    assert has_same_classes(start, config) is kept
    assert ("a new last layer for the classes immune" in sentence) is not kept
    network = config.make_task().network()
    begin_from(start, network, config)
    assert torch.equal(network.state_dict()["head.weight"], start.weights["head.weight"]) is kept


def test_one_class_keeps_the_last_layer_of_the_starter() -> None:
    start, sentence = find_start(TrainConfig(task="detect", classes=("tumour",)))
    assert start is not None
    assert sentence == "from the starter"
    assert has_same_classes(start, TrainConfig(task="detect", classes=("tumour",)))


def test_a_run_has_the_resolution_of_its_parent(tmp_path: Path) -> None:
    saved(tiny_config("detect", mpp=0.25), tmp_path)
    start = load_model(tmp_path)
    config = tiny_config("detect", start=str(tmp_path))
    assert at_resolution_of(start, config).mpp == 0.25
    with pytest.warns(TrainingWarning, match=r"works at 0\.25 µm/px and this run at 1,"):
        assert at_resolution_of(start, replace(config, mpp=1.0)).mpp == 1
    assert at_resolution_of(load_starter("detect"), TrainConfig(task="detect", mpp=0.25)).mpp == 0.25


def test_classes_in_another_order_get_a_new_last_layer(tmp_path: Path) -> None:
    parent = saved(tiny_config("detect", classes=("a", "b")), tmp_path)
    config = tiny_config("detect", start=str(parent), classes=("b", "a"))
    start, _ = find_start(config)
    assert start is not None
    network = config.make_task().network()
    begin_from(start, network, config)
    assert not torch.equal(network.state_dict()["head.weight"], start.weights["head.weight"])


def test_a_parent_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    parent = saved(tiny_config("detect"), tmp_path)
    with pytest.raises(SparseshotError, match="task detect, this run has the task segment"):
        find_start(tiny_config("segment", start=str(parent)))
    with pytest.raises(SparseshotError, match="another size"):
        find_start(tiny_config("detect", start=str(parent), width=7))
    with pytest.raises(CheckpointError, match="no such file"):
        find_start(tiny_config("detect", start=str(tmp_path / "gone")))


def test_a_start_that_knows_cells_has_the_options_of_its_loss() -> None:
    config = TrainConfig(task="segment", loss="adaptive")
    assert fine_tune(config, knows_cells=True).loss_options == {"teacher_from": 0.4}
    assert fine_tune(config, knows_cells=False) == config
    for other in (replace(config, task="detect"), replace(config, loss_options={"warm_up": 0.2})):
        assert fine_tune(other, knows_cells=True) == other


def test_steps() -> None:
    assert [steps_for(marks, from_scratch=False) for marks in (1, 100, 10_000)] == [150, 200, 300]
    assert steps_for(1, from_scratch=True) == 300
    config = tiny_config("detect")
    assert steps_in(0.05, config) < steps_in(5, config)
