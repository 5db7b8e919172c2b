"""Tables of the README and of docs/adaptive.md, from the raw metrics: ``python docs/results/tables.py``.

It prints them; with ``--write`` it puts them into the pages, between their marks.
"""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
METRICS = Path(__file__).parent / "metrics.json"
COMPARISONS = {
    ("tnbc", "segment"): "TNBC, Dice",
    ("tnbc", "detect"): "TNBC, F1",
    ("monuseg", "segment"): "MoNuSeg, Dice",
    ("monuseg", "detect"): "MoNuSeg, F1",
    ("brca_m2c", "detect"): "BRCA-M2C, F1",
    ("wbc_zheng", "segment"): "WBC-Zheng, Dice",
}
METHODS = {
    "adaptive": "adaptive exclusive cross-entropy",
    "ece": "exclusive cross-entropy, as in the paper",
    "ce": "cross-entropy",
}

Run = dict[str, Any]


@cache
def finished() -> list[Run]:
    """Give the finished runs of the first seed."""
    runs = json.loads(METRICS.read_text())["runs"]
    return [run for run in runs if run["seed"] == 0 and run["state"] == "done"]


def runs(*, marking: str | None = None) -> dict[tuple[str, str, str, float], Run]:
    """Give those whose marks were chosen in one way, by data set, task, method and fraction."""
    return {
        (run["dataset"], run["task"], run["method"], run["fraction"]): run
        for run in finished()
        if run.get("marking") == marking
    }


def main_table() -> str:
    """Give the scores at threshold 0.5 and calibrated."""
    done, fractions = runs(), (0.1, 0.3, 1.0)
    rows = [["", "", *(f"{fraction:.0%} of the marks" for fraction in fractions)]]
    for where, title in list(COMPARISONS.items())[:4]:
        for number, (method, name) in enumerate(METHODS.items()):
            scores = [_both(done.get((*where, method, fraction))) for fraction in fractions]
            rows.append(["" if number else title, name, *scores])
    return _markdown(rows)


def adaptive_table() -> str:
    """Give what the adaptive loss keeps, how far 0.5 is from its best threshold, and the paper's preset."""
    done = runs()
    header = ["", "marks", "at 0.5", "calibrated", "at its best threshold"]
    rows = [[*header, "calibrated, of cross-entropy with all marks", "`ece` at 0.5", "`ece` calibrated"]]
    for where, title in COMPARISONS.items():
        whole = done.get((*where, "ce", 1.0))
        for fraction in (0.05, 0.1, 0.3, 0.6, 1.0):
            run, paper = (done.get((*where, method, fraction)) for method in ("adaptive", "ece"))
            if run is not None:
                kept = (
                    "–" if whole is None else f"{_score(run, 'calibrated') / _score(whole, 'calibrated'):.0%}"
                )
                points = [f"{_score(run, point):.3f}" for point in ("half", "calibrated", "best")]
                rows.append([title, f"{fraction:.0%}", *points, kept, *_each(paper)])
    return _markdown(rows)


def marking_table() -> str:
    """Give the scores with 30 % of the marks, chosen in several ways."""
    rows = [["", "marks chosen", "adaptive", "cross-entropy"]]
    marked_otherwise = {(run["dataset"], run["task"]) for run in finished() if "marking" in run}
    for where, title in COMPARISONS.items():
        for marking in (None, "large", "corner", "images", "classes"):
            done = runs(marking=marking)
            scores = [_both(done.get((*where, method, 0.3))) for method in ("adaptive", "ce")]
            if where in marked_otherwise and scores != ["–", "–"]:
                rows.append([title, f"`{marking or 'random'}`", *scores])
    return _markdown(rows)


def _score(run: Run, point: str) -> float:
    return float(run[point]["pooled"])


def _each(run: Run | None) -> list[str]:
    return ["–", "–"] if run is None else [f"{_score(run, point):.3f}" for point in ("half", "calibrated")]


def _both(run: Run | None) -> str:
    return "–" if run is None else f"{_score(run, 'half'):.2f} / {_score(run, 'calibrated'):.2f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


TABLES = {
    "main": (ROOT / "README.md", main_table),
    "adaptive": (ROOT / "docs" / "adaptive.md", adaptive_table),
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
