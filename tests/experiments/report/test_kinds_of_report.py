"""The section of the report about kinds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.experiments.made_results import metrics_of

from sparseshot.cells import Cells
from sparseshot.experiments.experiment import Method, Run, Subject
from sparseshot.experiments.report.figures import confusion, draw_confusions
from sparseshot.experiments.report.sections import kinds_section
from sparseshot.experiments.results import Result, Results
from sparseshot.files import write_json
from sparseshot.metrics import KindCounts, kind_scores
from sparseshot.pages import to_markdown


def result(folder: Path, seed: int, *, is_told: bool = True) -> Result:
    """A run whose model takes one in four of a for b."""
    run = Run(Subject("brca_m2c", ("a", "b")), "detect", Method("x", "ce", "starter"), 0.1, seed, "quick")
    metrics: dict[str, Any] = metrics_of(run, 0.7, 0.8)
    if is_told:
        xy = np.arange(16).reshape(8, 2) * 50.0
        truth = Cells(xy, classes=("a", "b"), label=[0] * 4 + [1] * 4, mpp=0.5)
        found = Cells(xy[:7], classes=("a", "b"), label=[0, 0, 0, 1, 1, 1, 1], mpp=0.5)
        metrics["evaluation"]["kinds"] = kind_scores([KindCounts.of(truth, found, ("a", "b"))] * 3)
    write_json(folder / f"{seed}.json", metrics)
    return Result(run, folder, json.loads((folder / f"{seed}.json").read_text()))


def test_kinds_are_scored_and_drawn(tmp_path: Path) -> None:
    runs = [result(tmp_path, seed) for seed in (0, 1)]
    results = Results((), {str(k): run for k, run in enumerate(runs)})
    text = to_markdown(kinds_section(results), pictures="figures")
    f1 = {"a": 2 * 3 / (2 * 3 + 1), "b": 2 * 3 / (2 * 3 + 1 + 1)}
    assert "| a | b | mean | any cell |" in text
    assert f"{f1['a']:.3f}" in text
    assert f"{(f1['a'] + f1['b']) / 2:.3f}" in text
    assert "1.00\xa0/\xa00.75" in text
    assert "0.800" in text
    np.testing.assert_allclose(confusion(runs)[:2], [[0.75, 0.25, 0, 0], [0, 0.75, 0, 0.25]])
    drawn = draw_confusions(("a", "b"), {"starter": runs})
    assert drawn == draw_confusions(("a", "b"), {"starter": runs})
    assert b">found as<" in drawn


def test_runs_without_kinds_have_no_section(tmp_path: Path) -> None:
    assert kinds_section(Results((), {"0": result(tmp_path, 0, is_told=False)})) == []
