"""Runs of a simulated annotator on tiny data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.tiny_data import TINY_SETTINGS, tiny_tnbc

from sparseshot.active.annotator import first_marks
from sparseshot.errors import FormatError
from sparseshot.experiments import Results, open_experiment, read_experiment, run_experiment
from sparseshot.experiments.clicks import click_budgets, round_settings
from sparseshot.experiments.report import raw_metrics
from sparseshot.experiments.report.sections import may_be_shown
from sparseshot.models.model_files import load_starter
from sparseshot.work import Here

POLICIES = """
[losses.at-random]
loss = "adaptive"
policy = "random"
settings = { start = "scratch" }

[losses.reviewed]
loss = "adaptive"
policy = "review"
settings = { start = "scratch" }

[[grid]]
"""


def written(folder: Path, **grid: object) -> Path:
    values = {"datasets": ["tnbc"], "tasks": ["detect"], "losses": ["at-random"], "fractions": [60]} | grid
    lines = "\n".join(f"{key} = {value}" for key, value in values.items())
    path = folder / "clicks.toml"
    path.write_text(f"{TINY_SETTINGS}{POLICIES}{lines}\n")
    return path


@pytest.mark.filterwarnings("ignore::sparseshot.errors.SparseshotWarning")
def test_rounds_are_scored_and_resumed(tmp_path: Path) -> None:
    root, out = tiny_tnbc(tmp_path / "data"), tmp_path / "out"
    experiment = read_experiment(written(tmp_path, losses=["at-random", "reviewed"]))
    results = run_experiment(experiment, root=root, out=out, runner=Here())
    assert [result.state for result in results] == ["done", "done"], results
    metrics = [json.loads((result.folder / "metrics.json").read_text()) for result in results]
    for each in metrics:
        first, second = each["rounds"]
        assert (first["clicks"], first["marks"]) == (20, 20)
        assert second["clicks"] > 20
        assert each["training"]["marks"] == second["marks"] <= 24
        assert each["evaluation"]["cells"] == 12
        assert 0 <= second["half"]["pooled"] <= 1
    first, same = (each["rounds"][0] | {"seconds": None} for each in metrics)
    assert first == same, "the first round does not depend on the policy"
    assert metrics[1]["rounds"][1]["regions"] > 0
    folders = [result.folder for result in results]
    model = (folders[1] / "rounds" / "1" / "model.pt").read_bytes()
    (folders[1] / "metrics.json").unlink()
    (folders[1] / "rounds" / "1" / "round.json").unlink()
    again = run_experiment(experiment, root=root, out=out, runner=Here())
    assert [result.ran for result in again] == [False, True]
    assert (folders[1] / "rounds" / "1" / "model.pt").read_bytes() == model, "not trained again"
    assert again[1].score("half") == results[1].score("half")
    told = {run["name"]: run for run in raw_metrics(Results.read(out))["runs"]}
    assert told["tnbc-detect-reviewed-60-s0"]["rounds"][0]["clicks"] == 20


def test_a_round_holds_on_to_what_the_round_before_it_knew(tmp_path: Path) -> None:
    root = tiny_tnbc(tmp_path / "data")
    text = written(tmp_path, losses=["reviewed"]).read_text().replace('"adaptive"', '"auto"')
    text = text.replace('settings = { start = "scratch" }', "").replace(TINY_SETTINGS, "")
    (tmp_path / "auto.toml").write_text(text)
    (run,) = read_experiment(tmp_path / "auto.toml").runs
    known, _ = run.subject.source(root, fraction=1.0, seed=0).load()
    before = load_starter("detect")
    before = replace(before, config=replace(before.config, loss="distil"), path=tmp_path / "model.pt")
    settings = round_settings(run, first_marks(known, 5, seed=0), before, new_marks=5)
    assert settings.loss == "distil"


def test_the_budgets_grow_geometrically() -> None:
    assert click_budgets(20) == [20]
    assert click_budgets(200) == [20, 60, 180, 200]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tasks": ["segment"]}, "clicks are spent with tasks"),
        ({"fractions": [0.3]}, "20 clicks or more"),
        ({"datasets": ["synthetic"], "losses": ["ce"]}, "for losses with a policy"),
    ],
)
def test_what_clicks_cannot_be_spent_on(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_experiment(written(tmp_path, **change))


def test_an_unknown_policy_is_found_before_anything_runs(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace('"random"', '"rando"'))
    with pytest.raises(FormatError, match=r"\[losses\.at-random\]: there is no policy 'rando'; did you mean"):
        read_experiment(path)


def test_the_synthetic_slide_needs_no_data(tmp_path: Path) -> None:
    runs = [run for run in open_experiment("clicks").runs if run.subject.dataset == "synthetic"]
    assert runs[0].subject.title == "synthetic slide"
    assert may_be_shown(runs[0].subject.info.licence)
    runs[0].subject.check_data(None)
