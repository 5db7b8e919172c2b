"""Real runs on tiny data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.tiny_data import experiment_text, own_experiment, tiny_brca, tiny_tnbc
from tests.training.blobs import blobs

from sparseshot.experiments import Experiment, read_experiment, run_experiment
from sparseshot.experiments.results import Result, run_folder
from sparseshot.experiments.run_worker import exclusive_recalls, perform
from sparseshot.models.model_files import load_starter
from sparseshot.training.annotated import AnnotatedSlide


def experiment(tmp_path: Path, **grid: object) -> Experiment:
    path = tmp_path / "mine.toml"
    path.write_text(experiment_text(**grid))
    return read_experiment(path)


def test_a_run_leaves_config_curves_metrics_and_panels(tmp_path: Path) -> None:
    root = tiny_tnbc(tmp_path / "data")
    run = experiment(tmp_path).runs[0]
    folder = run_folder(tmp_path, run.name)
    perform(run, root, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["run"]["method"]["name"] == "ece"
    settings = json.loads((folder / "training" / "recipe.json").read_text())["settings"]
    assert metrics["config"] == {name: settings[name] for name in metrics["config"]}
    assert metrics["evaluation"]["images"] == 1
    assert metrics["evaluation"]["cells"] == 12
    assert metrics["training"] == {"images": 2, "marks": 12}, "half of 24"
    assert metrics["seconds"]["all"] > metrics["seconds"]["training"] > 0
    assert metrics["memory_bytes"]["process"] > 50e6
    assert metrics["versions"]["torch"]
    assert metrics["machine"]["threads"] >= 1
    assert (folder / "training" / "log.csv").read_text().count("\n") == 5
    result = Result.read(run, tmp_path)
    assert result.state == "done"
    assert result.score("half") == metrics["evaluation"]["half"]["pooled"]
    for image, column in (("training", "marks"), ("test", "truth"), ("test", "half")):
        panel = result.panel(image, column)
        assert panel is not None
        assert panel.shape == (96, 96, 3), "as large as the image, which is smaller than a picture"
    assert result.panel("test", "marks") is None, "of test images nothing is given"


def test_a_run_of_one_class_has_an_exclusive_recall(tmp_path: Path) -> None:
    root = tiny_brca(tmp_path / "data")
    run = experiment(
        tmp_path,
        datasets=["brca_m2c"],
        tasks=["detect"],
        classes=["lymphocyte"],
        negative_classes=["tumour", "stromal"],
    ).runs[0]
    folder = run_folder(tmp_path, run.name)
    perform(run, root, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["evaluation"]["cells"] == 4, "a third of the twelve are lymphocytes"
    assert 0 <= metrics["exclusive_recall"]["lymphocyte"]["half"] <= 1
    assert (
        Result.read(run, tmp_path).exclusive_recall("half")
        == metrics["exclusive_recall"]["lymphocyte"]["half"]
    )


def test_an_image_may_lack_a_class() -> None:
    model = load_starter("detect")
    model = replace(model, config=replace(model.config, classes=("tumour",)))
    slide, cells = blobs(0)
    images = [AnnotatedSlide(slide, replace(cells, classes=(name,))) for name in ("tumour", "stroma")]
    assert exclusive_recalls(model, images).keys() == {"tumour"}


def test_a_run_on_the_users_own_images(tmp_path: Path) -> None:
    run = own_experiment(tmp_path).runs[0]
    run.subject.check_data(None)
    folder = run_folder(tmp_path, run.name)
    perform(run, None, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert run.name == "mine-segment-ece-0.5-s0"
    assert metrics["evaluation"]["cells"] == 12
    assert metrics["training"] == {"images": 2, "marks": 12}, "half of 24"
    assert Result.read(run, tmp_path).run == run


@pytest.mark.slow
def test_of_two_real_processes_the_one_with_bad_data_fails_alone(tmp_path: Path) -> None:
    root = tiny_brca(tiny_tnbc(tmp_path / "data"))
    for image in root.glob("brca_m2c/images/*.png"):
        image.write_bytes(b"no image")
    file = experiment(tmp_path, datasets=["tnbc", "brca_m2c"], tasks=["detect"], losses=["ce"])
    results = run_experiment(file, root=root, out=tmp_path / "out", jobs=2)
    good, bad = results
    assert (good.run.subject.dataset, good.state) == ("tnbc", "done")
    assert bad.failure is not None
    assert "copy it again" in bad.failure
    assert "brca_m2c/images/" in bad.failure
