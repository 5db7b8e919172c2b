"""The runs of docs/results/record.json, for the pages and figures of results."""

import json
import math
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from sparseshot.experiments import Results, open_experiment
from sparseshot.experiments.report.comparisons import Comparison, Row, Spread, compare
from sparseshot.experiments.results import Point, Result

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RECORD = "record.json"
PLACES = {
    "tnbc-segment": "TNBC, Dice",
    "tnbc-detect": "TNBC, F1",
    "monuseg-segment": "MoNuSeg, Dice",
    "monuseg-detect": "MoNuSeg, F1",
    "brca_m2c-detect": "BRCA-M2C, F1",
    "crchisto-detect": "CRCHisto, F1",
    "wbc_zheng-segment": "WBC-Zheng, Dice",
    "wbc_zheng-detect": "WBC-Zheng, F1",
}
"""Data sets and tasks."""

FRACTIONS = (0.05, 0.1, 0.3, 0.6, 1.0)
"""Fractions of the marks for the adaptive loss."""


@cache
def raw(file: str) -> dict[str, Any]:
    """Return the content of a raw metrics file."""
    values: dict[str, Any] = json.loads((HERE / file).read_text())
    return values


@cache
def raw_runs(file: str = RECORD) -> dict[str, dict[str, Any]]:
    """Return the runs of a raw metrics file by name; none if nothing was run."""
    if not (HERE / file).exists():
        return {}
    return {run["name"]: run for run in raw(file)["runs"]}


@cache
def results(experiment: str) -> Results:
    """Return the results of an experiment, shipped or a file of this folder."""
    path = HERE / experiment
    plan = open_experiment(str(path) if path.is_file() else experiment, profile="quick")
    found = {}
    for run in plan.runs:
        values = raw_runs().get(run.name, {})
        metrics = {"evaluation": values, "exclusive_recall": values.get("exclusive_recall", {})}
        found[run.name] = Result(run, Path(), metrics=metrics if values.get("state") == "done" else None)
    return Results((plan,), found)


@cache
def comparisons(experiment: str = "record") -> dict[str, Comparison]:
    """Return the comparisons of an experiment by name; methods without runs are left out."""
    found = {}
    for each in compare(results(experiment)):
        rows = tuple(row for row in each.rows if row.curves["half"])
        if rows:
            found[each.name] = Comparison(each.subject, each.task, rows)
    return found


def row_of(place: str, method: str, experiment: str = "record") -> Row | None:
    """Return the row of a method; None if it was not run."""
    known = comparisons(experiment)
    return known[place].row(method) if place in known else None


def spread(
    place: str, method: str, fraction: float, point: Point, experiment: str = "record"
) -> Spread | None:
    """Return Dice or F1 over the seeds; None if it was not run."""
    row = row_of(place, method, experiment)
    return None if row is None else row.curves[point].get(fraction)


def runs_of(place: str, method: str, fraction: float) -> list[dict[str, Any]]:
    """Return the raw finished runs of a method, one for each seed."""
    row = row_of(place, method)
    planned = () if row is None else row.results.get(fraction, ())
    return [raw_runs()[result.run.name] for result in planned if result.state == "done"]


def score(place: str, method: str, fraction: float, point: Literal["half", "calibrated", "best"]) -> float:
    """Return Dice or F1 at an operating point, the mean over seeds; nan without runs."""
    runs = runs_of(place, method, fraction)
    return fmean(run[point]["pooled"] for run in runs) if runs else math.nan


def pair(place: str, method: str, fraction: float, experiment: str = "record") -> str:
    """Return the scores at threshold 0.5 / at the calibrated one; – without runs."""
    both = [spread(place, method, fraction, point, experiment) for point in ("half", "calibrated")]
    return "–" if None in both else " / ".join(map(str, both)).replace(" ±", "\xa0±")


def shares_of(place: str, fraction: float) -> list[dict[str, float]]:
    """Return the estimated shares of marks of the adaptive loss, one for each seed."""
    return [run["marked_share"] for run in runs_of(place, "adaptive", fraction) if "marked_share" in run]
