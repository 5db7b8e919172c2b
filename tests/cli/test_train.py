"""``sparseshot train`` from the command line."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.tiny_data import own_images

from sparseshot.cli import main
from sparseshot.files import locked
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.training import TrainConfig, TrainSettings

# One value other than the default for each setting, as TOML.
SETTINGS = {
    "task": '"detect"',
    "start": '"scratch"',
    "loss": '"focal"',
    "loss_options": "{ warm_up = 0.5 }",
    "classes": '["tumour", "lymphocyte"]',
    "negative_classes": '["stromal"]',
    "colors": '["#00aaff"]',
    "mpp": "0.25",
    "width": "8",
    "depth": "2",
    "stride": "4",
    "mark_reach": "0.25",
    "network": '"mine:network"',
    "sizes": "true",
    "context": "true",
    "heights": "true",
    "kind_features": "8",
    "kinds": '["tumour"]',
    "steps": "7",
    "batch": "2",
    "crop_px": "64",
    "learning_rate": "1e-4",
    "weight_decay": "0.5",
    "near_marks": "0.75",
    "stain_jitter": "0.5",
    "mark_radius_um": "4.5",
    "radius_um": "2.5",
    "seed": "5",
    "by_kind": "true",
    "validations": "2",
    "checkpoint_every": "50",
    "log_every": "5",
    "precision": '"32"',
}
OPTIONS = {
    "task": ("--task", "segment"),
    "loss": ("--loss", "ce"),
    "classes": ("--classes", "immune"),
    "negative_classes": ("--negative", "debris, fold"),
    "steps": ("--steps", "9"),
    "radius_um": ("--radius-um", "7"),
    "seed": ("--seed", "11"),
    "precision": ("--precision", "bf16"),
}


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs ``train`` up to the training, and returns the configuration."""
    own_images(tmp_path)
    seen: list[TrainConfig] = []

    def record(config: TrainConfig, data: Any, folder: Path, **_: object) -> Checkpoint:
        assert data.seed == config.seed
        seen.append(config)
        return Checkpoint(TrainSettings(), {}, step=1)

    monkeypatch.setattr("sparseshot.training.runs.train_run", record)

    def run(toml: str, *options: str) -> TrainConfig:
        (tmp_path / "settings.toml").write_text(toml)
        command = ["train", "--pairs", str(tmp_path / "train.csv"), "--out", str(tmp_path / "run")]
        assert main([*command, "--config", str(tmp_path / "settings.toml"), "--device", "cpu", *options]) == 0
        return seen[-1]

    return run


def test_every_setting_is_tested() -> None:
    assert set(SETTINGS) == {item.name for item in fields(TrainConfig)}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_file_counts(name: str, configured: Any) -> None:
    config = configured(f"{name} = {SETTINGS[name]}\n")
    assert getattr(config, name) != getattr(TrainConfig(), name)
    assert replace(config, **{name: getattr(TrainConfig(), name)}) == TrainConfig()


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_overrides_the_file(name: str, configured: Any) -> None:
    from_file = configured(f"{name} = {SETTINGS[name]}\n")
    config = configured(f"{name} = {SETTINGS[name]}\n", *OPTIONS[name])
    assert getattr(config, name) not in (getattr(from_file, name), getattr(TrainConfig(), name))
    assert replace(config, **{name: getattr(TrainConfig(), name)}) == TrainConfig()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seed", "-1"),
        ("--seed", str(2**40)),
        ("--mpp", "1e-9"),
        ("--mpp", "1e9"),
        ("--device", "meta"),
        ("--device", "abacus"),
    ],
)
def test_an_option_out_of_range_is_a_usage_error(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_images(tmp_path)
    command = ["train", "--pairs", str(tmp_path / "train.csv"), "--out", str(tmp_path / "run")]
    assert main([*command, option, value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option.removeprefix("--") in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("line", ["learning_rate = 1e9", "seed = -1", "mpp = 1e9", 'steps = "many"'])
def test_a_setting_out_of_range_is_a_usage_error(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_images(tmp_path)
    (tmp_path / "settings.toml").write_text(line)
    command = ["train", "--pairs", str(tmp_path / "train.csv"), "--out", str(tmp_path / "run")]
    assert main([*command, "--config", str(tmp_path / "settings.toml")]) == 2
    assert line.split(maxsplit=1)[0] in capsys.readouterr().err


def test_two_runs_on_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_images(tmp_path)
    with locked(tmp_path / "run"):
        command = ["train", "--pairs", str(tmp_path / "train.csv"), "--out", str(tmp_path / "run")]
        assert main([*command, "--mpp", "0.25", "--device", "cpu"]) == 1
    assert "another sparseshot is at work" in capsys.readouterr().err


def test_a_run_does_not_replace_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_images(tmp_path)
    table = tmp_path / "train.csv"
    before = table.read_bytes()
    command = ["train", "--pairs", str(table), "--out", str(table), "--device", "cpu"]
    assert main([*command, "--mpp", "0.25"]) == 1
    assert f"error: {table}: cannot be created" in capsys.readouterr().err
    assert table.read_bytes() == before


def test_a_missing_slide_is_noticed_before_torch_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("sparseshot.training")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["train", "--slide", "none.svs", "--marks", __file__, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.startswith("error: none.svs: ")
    assert main(["predict", str(tmp_path), __file__, "none.svs", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("error: none.svs: ")
    assert "sparseshot.training" not in sys.modules
    assert not (tmp_path / "out").exists()
