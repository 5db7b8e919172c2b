"""Damaged, foreign and hostile checkpoints are one error; equal runs write equal bytes."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prediction.networks import random_detector, save

from sparseshot.cli import main
from sparseshot.errors import CheckpointError
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.training import TrainConfig

KEYS = ("format", "version", "config", "weights", "step", "threshold", "criterion", "state", "versions")
NEEDED = tuple(key for key in KEYS if key not in {"threshold", "criterion"})
WRONG: tuple[Any, ...] = (None, "x", -1, 3.5, [1], {"a": 1}, {1: "a"}, torch.zeros(2), float("nan"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return (save(random_detector(threshold=0.8), tmp_path_factory.mktemp("run")) / "model.pt").read_bytes()


def loads(content: bytes, path: Path) -> bool:
    """Return whether a file is a checkpoint that gives a network; anything but CheckpointError is raised."""
    path.write_bytes(content)
    try:
        Checkpoint.load(path).network()
    except CheckpointError:
        return False
    return True


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def changed(whole: bytes, **changes: object) -> bytes:
    return saved(torch.load(io.BytesIO(whole), weights_only=True) | changes)


def test_a_whole_one_loads(whole: bytes, tmp_path: Path) -> None:
    assert loads(whole, tmp_path / "model.pt")


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_entry(key: str, whole: bytes, tmp_path: Path) -> None:
    content = torch.load(io.BytesIO(whole), weights_only=True)
    del content[key]
    assert loads(saved(content), tmp_path / "model.pt") is False


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("key", NEEDED)
def test_an_entry_of_the_wrong_type(key: str, value: object, whole: bytes, tmp_path: Path) -> None:
    kinds: dict[str, tuple[type, ...]] = {"step": (int,), "state": (dict,), "versions": (dict,)}
    assert loads(changed(whole, **{key: value}), tmp_path / "model.pt") is isinstance(
        value, kinds.get(key, ())
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("width", 10**12),
        ("width", 1.5),
        ("depth", 10**6),
        ("stride", 0),
        ("stride", 5),
        ("classes", "ab"),
        ("classes", [1]),
        ("classes", ["a"] * 3),
        ("loss", 7),  # one that is unknown ends in an error where it is used, in training
        ("loss_options", [1]),
        ("task", "count"),
        ("mpp", 1e400),
        ("mpp", None),
        ("steps", True),
        ("colour", "red"),
    ],
)
def test_a_wrong_configuration(setting: str, value: object, whole: bytes, tmp_path: Path) -> None:
    config = json.loads(torch.load(io.BytesIO(whole), weights_only=True)["config"])
    for text in (json.dumps(config | {setting: value}), "[" * 100_000, "[]", "{", '"x"'):
        assert not loads(changed(whole, config=text), tmp_path / "model.pt")


def test_a_loss_that_it_names_is_not_imported(
    whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads(torch.load(io.BytesIO(whole), weights_only=True)["config"])
    text = json.dumps(config | {"loss": "hostile:Loss", "loss_options": {}})
    assert loads(changed(whole, config=text), tmp_path / "model.pt")


def test_weights_of_another_network(whole: bytes, tmp_path: Path) -> None:
    weights = torch.load(io.BytesIO(whole), weights_only=True)["weights"]
    name = next(iter(weights))
    for wrong in (
        {},
        {name: weights[name]},
        weights | {"more": torch.zeros(1)},
        weights | {name: weights[name][:1]},
        weights | {name: "x"},
        weights | {name: weights[name].to_sparse()},
    ):
        assert not loads(changed(whole, weights=wrong), tmp_path / "model.pt")


def test_foreign_files(whole: bytes, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "a")
    weights = torch.load(io.BytesIO(whole), weights_only=True)["weights"]
    for content in (
        b"",
        b"PK\x03\x04",
        b"\x80\x04.",
        bytes(1000),
        archive.getvalue(),
        pickle.dumps({"a": 1}),
    ):
        assert not loads(content, tmp_path / "model.pt")
    for value in (weights, [1], torch.zeros(3), {"state_dict": weights}, {}):
        assert not loads(saved(value), tmp_path / "model.pt")


def test_damaged_bytes_are_an_error_or_harmless(whole: bytes, tmp_path: Path) -> None:
    for end in range(0, len(whole), len(whole) // 12):
        assert not loads(whole[:end], tmp_path / "model.pt")
    for place in range(0, len(whole), len(whole) // 100):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        loads(bytes(damaged), tmp_path / "model.pt")


def test_the_command_line_says_it_in_one_line(
    whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(changed(whole, weights={}))
    assert main(["predict", str(path), __file__, "--out", str(tmp_path / "out"), "--device", "cpu"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ")


def test_equal_checkpoints_are_equal_bytes(whole: bytes, tmp_path: Path) -> None:
    checkpoint = random_detector(threshold=0.8)
    contents = []
    for name in ("a.pt", "b.pt"):
        checkpoint.save(tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] == whole


@pytest.mark.parametrize(
    ("setting", "value"),
    [("seed", -1), ("seed", 2**40), ("learning_rate", 1e9), ("mpp", 1e-9), ("mpp", 1e9), ("steps", "many")],
)
def test_settings_out_of_range_are_named(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{setting} is {value}|^{setting} is '{value}'"):
        TrainConfig(**{setting: value})
