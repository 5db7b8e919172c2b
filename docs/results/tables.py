"""Write the tables and figures of README and docs from the raw metrics: ``python docs/results/tables.py``.

Tables stand in their pages between two comments, ``<!-- table NAME -->`` and ``<!-- end -->``.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from sparseshot.experiments import Results, open_experiment
from sparseshot.experiments.report.comparisons import Comparison, Row, compare
from sparseshot.experiments.report.sections import paper_table_section
from sparseshot.experiments.results import POINTS, Result
from sparseshot.pages import table

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PLACES = {
    "tnbc-segment": "TNBC, Dice",
    "tnbc-detect": "TNBC, F1",
    "monuseg-segment": "MoNuSeg, Dice",
    "monuseg-detect": "MoNuSeg, F1",
    "brca_m2c-detect": "BRCA-M2C, F1",
    "wbc_zheng-segment": "WBC-Zheng, Dice",
    "wbc_zheng-detect": "WBC-Zheng, F1",
}
"""Data sets and tasks of the tables."""

MAIN_METHODS = {
    "adaptive": "adaptive exclusive cross-entropy",
    "ece": "exclusive cross-entropy, as in the paper",
    "ece-nki": "the same, preset of the authors' package",
    "ce": "cross-entropy",
}
FRACTIONS = (0.05, 0.1, 0.3, 0.6, 1.0)
"""Fractions of the marks for the adaptive loss."""


@cache
def raw_runs(file: str) -> dict[str, dict[str, Any]]:
    """Return the runs of a raw metrics file by name."""
    return {run["name"]: run for run in json.loads((HERE / file).read_text())["runs"]}


@cache
def results(file: str, *experiments: str) -> Results:
    """Return the results of shipped experiments, with the scores of a raw metrics file."""
    raw = raw_runs(file)
    plans = tuple(open_experiment(name, profile="quick") for name in experiments)
    found = {}
    for run in (run for plan in plans for run in plan.runs):
        if (values := raw.get(run.name, {})).get("state") != "done":
            found[run.name] = Result(run, Path())
            continue
        metrics = {"evaluation": values, "exclusive_recall": values.get("exclusive_recall", {})}
        found[run.name] = Result(run, Path(), metrics=metrics)
    return Results(plans, found)


@cache
def comparisons() -> dict[str, Comparison]:
    """Return the comparisons by name, e.g. ``tnbc-segment``."""
    return {each.name: each for each in compare(results("metrics.json", "results", "adaptive"))}


@cache
def record() -> dict[str, Comparison]:
    """Return the comparisons of the experiment ``record``; until it was run, those of ``results``."""
    if not (HERE / "record.json").is_file():
        return comparisons()
    return {each.name: each for each in compare(results("record.json", "record"))}


def shown(place: str, row: Row, fraction: float) -> str:
    """Return the scores of a method at threshold 0.5 / calibrated, and the paper's in parentheses."""
    if not row.curves["half"].get(fraction):
        return "–"
    ours = " / ".join(record()[place].show(row, fraction, point) for point in POINTS)
    paper = f" ({row.paper[fraction]:.2f})" if fraction in row.paper else ""
    return (ours + paper).replace(" ±", "\xa0±").replace(" (", "\xa0(")  # lines break at the slash alone


def runs_of(place: str, method: str, fraction: float) -> list[Result]:
    """Return the runs of a method, one for each seed."""
    row = comparisons()[place].row(method) if place in comparisons() else None
    return list(row.results.get(fraction, ())) if row is not None else []


def score(place: str, method: str, fraction: float, point: str) -> float:
    """Return Dice or F1 at an operating point, the mean over seeds; nan without runs."""
    runs = runs_of(place, method, fraction)
    return fmean(run.score(point) for run in runs) if runs else math.nan  # type: ignore[arg-type, misc]


def scores(place: str, method: str, fraction: float, *, digits: int = 2) -> str:
    """Return the scores at threshold 0.5 and at the calibrated one."""
    values = [score(place, method, fraction, point) for point in ("half", "calibrated")]
    return "–" if any(map(math.isnan, values)) else " / ".join(f"{value:.{digits}f}" for value in values)


def main_table() -> str:
    """Return the scores of the main methods, for the README."""
    fractions = (0.1, 0.3, 1.0)
    rows = []
    for place, title in list(PLACES.items())[:3]:
        known = [(row, name) for method, name in MAIN_METHODS.items() if (row := record()[place].row(method))]
        for number, (row, name) in enumerate(known):
            cells = [shown(place, row, fraction) for fraction in fractions]
            rows.append(["" if number else title, name, *cells])
    return table(["", "", *(f"{f:.0%} of the marks" for f in fractions)], rows, text_columns=2)


def summary_table() -> str:
    """Return the scores of all methods on all data sets."""
    fractions = (0.1, 0.3, 1.0)
    rows = []
    for place, title in (PLACES | {"crchisto-detect": "CRCHisto, F1"}).items():
        for row in record()[place].rows if place in record() else ():
            cells = [shown(place, row, fraction) for fraction in fractions]
            if set(cells) != {"–"}:
                rows.append([title, row.method.title, *cells])
    return table(["", "method", *(f"{f:.0%} of the marks" for f in fractions)], rows, text_columns=2)


def adaptive_table() -> str:
    """Return the adaptive loss beside its baselines."""
    baselines = {"`ece`": "ece", "`ce`": "ce", "`nnpu`, true share": "nnpu-told", "`oracle`": "oracle"}
    header = [
        "",
        "marks",
        "seeds",
        "`adaptive`",
        "at its best threshold",
        "of `ce` with all marks",
        *baselines,
    ]
    rows = []
    for place, fraction in adaptive_places():
        best = score(place, "adaptive", fraction, "best")
        kept = score(place, "adaptive", fraction, "calibrated") / score(place, "ce", 1.0, "calibrated")
        own = [str(len(runs_of(place, "adaptive", fraction))), scores(place, "adaptive", fraction, digits=3)]
        others = [scores(place, method, fraction, digits=3) for method in baselines.values()]
        rows.append([PLACES[place], f"{fraction:.0%}", *own, f"{best:.3f}", f"{kept:.0%}", *others])
    return table(header, rows)


def targets_table() -> str:
    """Return what was intended of the adaptive loss from 10 % of the marks on, and where it is not met."""
    places = [(place, fraction) for place, fraction in adaptive_places() if fraction >= 0.1]
    targets = {
        "calibrated, at least 96 % of `ce` with all marks": lambda place, f: (
            score(place, "adaptive", f, "calibrated") >= 0.96 * score(place, "ce", 1.0, "calibrated")
        ),
        "at 0.5, at most 0.01 below `ece`": lambda place, f: (
            score(place, "adaptive", f, "half") >= score(place, "ece", f, "half") - 0.01
        ),
        "calibrated, at most 0.01 below `ece`": lambda place, f: (
            score(place, "adaptive", f, "calibrated") >= score(place, "ece", f, "calibrated") - 0.01
        ),
        "at 0.5, at most 0.02 below its own best threshold": lambda place, f: (
            score(place, "adaptive", f, "half") >= score(place, "adaptive", f, "best") - 0.02
        ),
    }
    rows = []
    for target, is_met in targets.items():
        missed: dict[str, list[str]] = {}
        for place, fraction in places:
            if not is_met(place, fraction):
                missed.setdefault(place, []).append(f"{fraction:.0%}")
        met = len(places) - sum(map(len, missed.values()))
        where = "; ".join(f"{PLACES[place]} at {', '.join(at)}" for place, at in missed.items())
        rows.append([target, f"{met} of {len(places)}", where or "–"])
    return table(["target, from 10 % of the marks on", "met", "not met"], rows, text_columns=3)


def share_table() -> str:
    """Return the estimated and the true share of marks, and in detection z."""
    rows = []
    for place, title in PLACES.items():
        estimates = [shares_of(place, fraction) for fraction in FRACTIONS]
        pairs = [[_mean(e[end] for e in these) for end in ("found", "true")] for these in estimates]
        rows.append([title, "ĉ / c", *(" / ".join(pair) for pair in pairs)])
        if place.endswith("detect"):
            z = [_mean(e["alpha"] / (1 + e["alpha"]) / e["found"] for e in these) for these in estimates]
            rows.append(["", "z", *z])
    return table(["", "", *(f"{f:.0%} of the marks" for f in FRACTIONS)], rows, text_columns=2)


def marking_table() -> str:
    """Return the scores with 30 % of the marks, chosen in several ways."""
    rows = []
    for place, title in PLACES.items():
        dataset, task = place.split("-")
        ways = {way: f"{dataset}@{way}-{task}" for way in ("large", "corner", "images", "classes")}
        ways = {way: name for way, name in ways.items() if name in comparisons()}
        for way, name in ({"random": place} | ways).items() if ways else ():
            cells = [scores(name, method, 0.3) for method in ("adaptive", "ce")]
            rows.append([title, f"`{way}`", *cells])
    return table(["", "marks chosen", "adaptive", "cross-entropy"], rows, text_columns=2)


def paper_table_of(name: str) -> str:
    """Return one of the paper's tables, ours beside the paper's numbers."""
    *_, text = paper_table_section(open_experiment(name, profile="quick"), results("paper-tables.json", name))
    return str(text)


def adaptive_places() -> list[tuple[str, float]]:
    """Return the places and fractions of the adaptive loss."""
    return [(place, f) for place in PLACES for f in FRACTIONS if runs_of(place, "adaptive", f)]


def shares_of(place: str, fraction: float) -> list[dict[str, float]]:
    """Return the estimated shares of marks of the adaptive loss, one for each seed."""
    raw = [raw_runs("metrics.json")[result.run.name] for result in runs_of(place, "adaptive", fraction)]
    return [run["marked_share"] for run in raw if "marked_share" in run]


def _mean(values: Iterable[float]) -> str:
    numbers = list(values)
    return f"{fmean(numbers):.2f}" if numbers else "–"


TABLES = {
    "main": (ROOT / "README.md", main_table),
    "summary": (ROOT / "docs" / "results.md", summary_table),
    "adaptive": (ROOT / "docs" / "adaptive.md", adaptive_table),
    "shares": (ROOT / "docs" / "adaptive.md", share_table),
    "targets": (ROOT / "docs" / "adaptive.md", targets_table),
    "marking": (ROOT / "docs" / "adaptive.md", marking_table),
    **{
        name: (ROOT / "docs" / "paper-tables.md", lambda name=name: paper_table_of(name))
        for name in ("annealing", "exclusive-recall", "weak-supervision")
    },
}


def between(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a table in its page."""
    return re.compile(rf"(<!-- table {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def write_tables(tables: Mapping[str, tuple[Path, Callable[[], str]]]) -> None:
    """Write tables into their pages."""
    for name, (page, make) in tables.items():
        text, count = between(name).subn(lambda m, make=make: m[1] + make() + m[2], page.read_text())
        assert count == 1, f"{page} has {count} places for the table {name}"
        page.write_text(text)


if __name__ == "__main__":
    write_tables(TABLES)
