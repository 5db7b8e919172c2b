"""Tables of the README and of docs/adaptive.md, from the raw metrics: ``python docs/results/tables.py``.

It prints them; with ``--write`` it puts them into the pages, between their marks.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[2]
METRICS = Path(__file__).parent / "metrics.json"
TITLES = {
    ("tnbc", "segment"): "TNBC, Dice",
    ("tnbc", "detect"): "TNBC, F1",
    ("monuseg", "segment"): "MoNuSeg, Dice",
    ("monuseg", "detect"): "MoNuSeg, F1",
    ("brca_m2c", "detect"): "BRCA-M2C, F1",
    ("wbc_zheng", "segment"): "WBC-Zheng, Dice",
    ("wbc_zheng", "detect"): "WBC-Zheng, F1",
}
METHODS = {
    "adaptive": "adaptive exclusive cross-entropy",
    "ece": "exclusive cross-entropy, as in the paper",
    "ce": "cross-entropy",
}
FRACTIONS = (0.05, 0.1, 0.3, 0.6, 1.0)
"""Of the marks, for the adaptive loss."""

Place = tuple[str, str]
"""A data set and a task."""


class Score(NamedTuple):
    """Dice or F1 over all test images, the mean over seeds."""

    half: float
    calibrated: float
    best: float
    seeds: int

    @classmethod
    def over_seeds(cls, runs: Sequence[dict[str, Any]]) -> Self:
        """Take the mean of runs that differ in their seed."""
        points = ("half", "calibrated", "best")
        half, calibrated, best = (fmean(run[point]["pooled"] for run in runs) for point in points)
        return cls(half, calibrated, best, len(runs))

    def told(self, digits: int) -> str:
        """Return it at threshold 0.5 and calibrated."""
        return f"{self.half:.{digits}f} / {self.calibrated:.{digits}f}"


@cache
def done(marking: str | None = None) -> dict[tuple[Place, str, float], list[dict[str, Any]]]:
    """Return the runs with marks chosen in one way, by place, method and fraction."""
    groups: dict[tuple[Place, str, float], list[dict[str, Any]]] = {}
    for run in json.loads(METRICS.read_text())["runs"]:
        if run["state"] == "done" and run.get("marking") == marking:
            place = run["dataset"], run["task"]
            groups.setdefault((place, run["method"], run["fraction"]), []).append(run)
    return groups


@cache
def scores(marking: str | None = None) -> dict[tuple[Place, str, float], Score]:
    """Return what they reached, the mean over seeds."""
    return {key: Score.over_seeds(runs) for key, runs in done(marking).items()}


def main_table() -> str:
    """Return the scores at threshold 0.5 and calibrated."""
    fractions = (0.1, 0.3, 1.0)
    rows = [["", "", *(f"{fraction:.0%} of the marks" for fraction in fractions)]]
    for place, title in list(TITLES.items())[:4]:
        for number, (method, name) in enumerate(METHODS.items()):
            told = [_told(place, method, fraction=fraction) for fraction in fractions]
            rows.append(["" if number else title, name, *told])
    return _markdown(rows)


def adaptive_table() -> str:
    """Return the adaptive loss beside the others."""
    rivals = {"`ece`": "ece", "`ce`": "ce", "`nnpu`, told": "nnpu-told", "`oracle`": "oracle"}
    header = ["", "marks", "seeds", "`adaptive`", "at its best threshold", "of `ce` with all marks", *rivals]
    rows = [header]
    for (place, fraction), score in _adaptive().items():
        whole = scores().get((place, "ce", 1.0))
        kept = "–" if whole is None else f"{score.calibrated / whole.calibrated:.0%}"
        beside = [_told(place, method, fraction=fraction, digits=3) for method in rivals.values()]
        mean = [str(score.seeds), score.told(3), f"{score.best:.3f}", kept]
        rows.append([TITLES[place], f"{fraction:.0%}", *mean, *beside])
    return _markdown(rows)


def hopes_table() -> str:
    """Return what was hoped for of the adaptive loss from 10 % of the marks on, and where it is not so."""
    known = {key: score for key, score in _adaptive().items() if key[1] >= 0.1}
    all_scores = scores()
    whole = {key: all_scores[key[0], "ce", 1.0] for key in known if (key[0], "ce", 1.0) in all_scores}
    paper = {key: all_scores[key[0], "ece", key[1]] for key in known if (key[0], "ece", key[1]) in all_scores}
    hopes = {
        "calibrated, at least 96 % of `ce` with all marks": {
            key: known[key].calibrated >= 0.96 * whole[key].calibrated for key in whole
        },
        "at 0.5, at most 0.01 below `ece`": {key: known[key].half >= paper[key].half - 0.01 for key in paper},
        "calibrated, at most 0.01 below `ece`": {
            key: known[key].calibrated >= paper[key].calibrated - 0.01 for key in paper
        },
        "at 0.5, at most 0.02 below its own best threshold": {
            key: score.half >= score.best - 0.02 for key, score in known.items()
        },
    }
    rows = [["hoped for, from 10 % of the marks on", "is so", "is not so"]]
    for hope, came in hopes.items():
        failed: dict[Place, list[str]] = {}
        for (place, fraction), true in came.items():
            if not true:
                failed.setdefault(place, []).append(f"{fraction:.0%}")
        where = "; ".join(f"{TITLES[place]} at {', '.join(at)}" for place, at in failed.items())
        rows.append([hope, f"{sum(came.values())} of {len(came)}", where or "nowhere"])
    return _markdown(rows)


def share_table() -> str:
    """Return what the adaptive loss took the share of marks for, and in detection which z it took."""
    rows = [["", "", *(f"{fraction:.0%} of the marks" for fraction in FRACTIONS)]]
    for place, title in TITLES.items():
        found = [done().get((place, "adaptive", fraction), []) for fraction in FRACTIONS]
        estimates = [[run["marked_share"] for run in runs if "marked_share" in run] for runs in found]
        shares = [[_mean(e[end] for e in these) for end in ("found", "true")] for these in estimates]
        rows.append([title, "ĉ / c", *(" / ".join(pair) for pair in shares)])
        if place[1] == "detect":
            of_one = [_mean(e["alpha"] / (1 + e["alpha"]) / e["found"] for e in these) for these in estimates]
            rows.append(["", "z", *of_one])
    return _markdown(rows)


def marking_table() -> str:
    """Return the scores with 30 % of the marks, chosen in several ways."""
    rows = [["", "marks chosen", "adaptive", "cross-entropy"]]
    ways = ("large", "corner", "images", "classes")
    otherwise = {place for way in ways for place, _, _ in scores(way)}
    for place, title in TITLES.items():
        for way in (None, *ways):
            told = [_told(place, method, fraction=0.3, marking=way) for method in ("adaptive", "ce")]
            if place in otherwise and told != ["–", "–"]:
                rows.append([title, f"`{way or 'random'}`", *told])
    return _markdown(rows)


def _adaptive() -> dict[tuple[Place, float], Score]:
    """Return the scores of the adaptive loss, in the order of the tables."""
    keys = [(place, fraction) for place in TITLES for fraction in FRACTIONS]
    found = {key: scores().get((key[0], "adaptive", key[1])) for key in keys}
    return {key: score for key, score in found.items() if score is not None}


def _told(place: Place, method: str, *, fraction: float, digits: int = 2, marking: str | None = None) -> str:
    score = scores(marking).get((place, method, fraction))
    return "–" if score is None else score.told(digits)


def _mean(values: Iterable[float]) -> str:
    numbers = list(values)
    return f"{fmean(numbers):.2f}" if numbers else "–"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


TABLES = {
    "main": (ROOT / "README.md", main_table),
    "adaptive": (ROOT / "docs" / "adaptive.md", adaptive_table),
    "shares": (ROOT / "docs" / "adaptive.md", share_table),
    "hopes": (ROOT / "docs" / "adaptive.md", hopes_table),
    "marking": (ROOT / "docs" / "adaptive.md", marking_table),
}


def between(name: str) -> re.Pattern[str]:
    """Find a table in its page: between two comments, so that nobody sees them."""
    return re.compile(rf"(<!-- table {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


if __name__ == "__main__":
    for name, (page, table) in TABLES.items():
        print(f"{page.name}, {name}:\n\n{table()}\n")
        if "--write" in sys.argv:
            text, count = between(name).subn(lambda m, table=table: m[1] + table() + m[2], page.read_text())
            assert count == 1, f"{page} has {count} places for the table {name}"
            page.write_text(text)
