"""Write the tables and numbers of README and docs from record.json: ``python docs/results/tables.py``.

They stand in their pages between two comments, ``<!-- table NAME -->`` and ``<!-- end -->``. What was not run
is – or left out.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean

import findings
from record import FRACTIONS, HERE, PLACES, ROOT, comparisons, pair, results, runs_of, score, shares_of

from sparseshot.experiments.report.comparisons import Row, percent
from sparseshot.experiments.report.sections import paper_table_section
from sparseshot.experiments.results import POINTS
from sparseshot.pages import table

DOCS = ROOT / "docs"
SHOWN = (0.1, 0.3, 1.0)
"""Fractions of the table of all scores."""


def shown(place: str, row: Row, fraction: float) -> str:
    """Return the scores of a method at threshold 0.5 / calibrated, and the paper's in parentheses."""
    if fraction not in row.curves["half"]:
        return "–"
    ours = " / ".join(comparisons()[place].show(row, fraction, point) for point in POINTS)
    paper = f" ({row.paper[fraction]:.2f})" if fraction in row.paper else ""
    return (ours + paper).replace(" ±", "\xa0±").replace(" (", "\xa0(")  # lines break at the slash alone


def main_table() -> str:
    """Return what README shows: few marks from random weights, and no marks at all."""
    zero = json.loads((HERE / "starter-zero.json").read_text())
    peers = json.loads((HERE / "peers.json").read_text())
    peers = {row["set"]: row for row in peers if row["program"] == "InstanSeg"}
    rows = []
    for place in list(PLACES)[:4]:
        dataset, task = place.split("-")
        peer = peers[dataset]["f1" if task == "detect" else "dice"]
        star = "\xa0\\*" if peers[dataset]["learned"] else ""
        without = [f"{zero[place]['calibrated']:.2f}", f"{peer:.2f}{star}"]
        scores = {f: [pair(place, method, f) for method in ("ce", "ece", "adaptive")] for f in (0.1, 0.3)}
        known = {percent(f): cells for f, cells in scores.items() if set(cells) != {"–"}} or {"–": ["–"] * 3}
        for number, (marks, cells) in enumerate(known.items()):
            rows.append(["" if number else PLACES[place], marks, *cells, *(["", ""] if number else without)])
    header = [
        "",
        "marks",
        "cross-entropy",
        "exclusive",
        "adaptive",
        "starter, no marks",
        "InstanSeg, no marks",
    ]
    return table(header, rows, text_columns=2)


def summary_table() -> str:
    """Return the scores of all methods on all data sets."""
    rows = []
    for place, title in PLACES.items():
        known = comparisons()[place].rows if place in comparisons() else ()
        for row in (row for row in known if set(SHOWN) & row.curves["half"].keys()):
            cells = [shown(place, row, fraction) for fraction in SHOWN]
            counts = [n for f in SHOWN if (n := len(runs_of(place, row.method.name, f)))]
            seeds = "–".join(map(str, dict.fromkeys((min(counts), max(counts)))))
            is_first = not rows or all(title != earlier[0] for earlier in rows)
            rows.append([title if is_first else "", f"`{row.method.name}`", seeds, *cells])
    return table(["", "method", "seeds", *map(percent, SHOWN)], rows, text_columns=2)


def adaptive_table() -> str:
    """Return the adaptive loss beside the paper's and cross-entropy."""
    header = [
        "",
        "marks",
        "seeds",
        "`adaptive`",
        "at its best threshold",
        "of `ce` with all marks",
        "`ece`",
        "`ce`",
    ]
    rows = []
    for place, fraction in adaptive_places():
        best = score(place, "adaptive", fraction, "best")
        kept = score(place, "adaptive", fraction, "calibrated") / score(place, "ce", 1.0, "calibrated")
        own = [
            str(len(runs_of(place, "adaptive", fraction))),
            pair(place, "adaptive", fraction),
            f"{best:.2f}",
        ]
        others = [pair(place, method, fraction) for method in ("ece", "ce")]
        rows.append(
            [PLACES[place], percent(fraction), *own, "–" if math.isnan(kept) else f"{kept:.0%}", *others]
        )
    return table(header, rows)


def targets_table() -> str:
    """Return what was intended of the adaptive loss from 10 % of the marks on, and where it is not met."""
    own = ("adaptive", "calibrated")
    targets: dict[str, Callable[[str, float], float]] = {
        "calibrated, at least 96 % of `ce` with all marks": lambda place, f: (
            score(place, own[0], f, "calibrated") - 0.96 * score(place, "ce", 1.0, "calibrated")
        ),
        "at 0.5, at most 0.01 below `ece`": lambda place, f: (
            score(place, own[0], f, "half") - score(place, "ece", f, "half") + 0.01
        ),
        "calibrated, at most 0.01 below `ece`": lambda place, f: (
            score(place, own[0], f, "calibrated") - score(place, "ece", f, "calibrated") + 0.01
        ),
        "at 0.5, at most 0.02 below its own best threshold": lambda place, f: (
            score(place, own[0], f, "half") - score(place, own[0], f, "best") + 0.02
        ),
    }
    places = [(place, fraction) for place, fraction in adaptive_places() if fraction >= 0.1]
    rows = []
    for target, lead in targets.items():
        leads = {at: lead(*at) for at in places}
        known = {at: value for at, value in leads.items() if not math.isnan(value)}  # the other was run
        missed: dict[str, list[str]] = {}
        for (place, fraction), value in known.items():
            if value < 0:
                missed.setdefault(place, []).append(percent(fraction))
        met = len(known) - sum(map(len, missed.values()))
        where = "; ".join(f"{PLACES[place]} at {', '.join(at)}" for place, at in missed.items())
        rows.append([target, f"{met} of {len(known)}", where or "–"])
    return table(["target, from 10 % of the marks on", "met", "not met"], rows, text_columns=3)


def share_table() -> str:
    """Return the estimated and the true share of marks, and in detection z."""
    fractions = [f for f in FRACTIONS if any(shares_of(place, f) for place in PLACES)]
    rows = []
    for place, title in PLACES.items():
        estimates = [shares_of(place, fraction) for fraction in fractions]
        if not any(estimates):
            continue
        pairs = [[_mean(e[end] for e in these) for end in ("found", "true")] for these in estimates]
        rows.append([title, "ĉ / c", *(" / ".join(pair) for pair in pairs)])
        if place.endswith("detect"):
            z = [_mean(e["alpha"] / (1 + e["alpha"]) / e["found"] for e in these) for these in estimates]
            rows.append(["", "z", *z])
    return table(["", "", *map(percent, fractions)], rows, text_columns=2)


def marking_table() -> str:
    """Return the scores with 30 % of the marks, chosen in several ways."""
    rows = []
    for name, comparison in comparisons("adaptive").items():
        place, way = f"{comparison.subject.dataset}-{comparison.task}", comparison.subject.marking
        if way != "random":
            if all(PLACES[place] != row[0] for row in rows):
                random = [pair(place, method, 0.3) for method in ("adaptive", "ce")]
                rows.append([PLACES[place], "`random`", *random])
            cells = [pair(name, method, 0.3, "adaptive") for method in ("adaptive", "ce")]
            rows.append([PLACES[place], f"`{way}`", *cells])
    if not rows:
        return "Not run with this version: `sparseshot experiment adaptive` runs them."
    return table(["", "marks chosen", "adaptive", "cross-entropy"], rows, text_columns=2)


def paper_table_of(name: str) -> str:
    """Return one of the paper's tables, ours beside the paper's numbers."""
    *_, text = paper_table_section(next(iter(results(name).experiments)), results(name))
    return str(text)


def adaptive_places() -> list[tuple[str, float]]:
    """Return the places and fractions of the adaptive loss."""
    return [(place, f) for place in PLACES for f in FRACTIONS if runs_of(place, "adaptive", f)]


def _mean(values: Iterable[float]) -> str:
    numbers = list(values)
    return f"{fmean(numbers):.2f}" if numbers else "–"


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "main": (ROOT / "README.md", main_table),
    "runs": (DOCS / "results.md", findings.runs),
    "summary": (DOCS / "results.md", summary_table),
    "differences": (DOCS / "results.md", findings.differences),
    "tried": (DOCS / "results.md", findings.tried),
    "shortfall": (DOCS / "results.md", findings.shortfall),
    "adaptive": (DOCS / "adaptive.md", adaptive_table),
    "shares": (DOCS / "adaptive.md", share_table),
    "targets": (DOCS / "adaptive.md", targets_table),
    "marking": (DOCS / "adaptive.md", marking_table),
    "weak": (DOCS / "paper-tables.md", findings.weak),
    **{
        name: (DOCS / "paper-tables.md", lambda name=name: paper_table_of(name))
        for name in ("annealing", "weak-supervision", "exclusive-recall")
    },
}


def between(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a table in its page."""
    return re.compile(rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)


def write_tables(tables: Mapping[str, tuple[Path, Callable[[], str]]]) -> None:
    """Write tables into their pages."""
    for name, (page, make) in tables.items():
        text, count = between(name).subn(lambda m, make=make: f"{m[1]}\n{make()}\n{m[2]}", page.read_text())
        assert count == 1, f"{page} has {count} places for the table {name}"
        page.write_text(text)


if __name__ == "__main__":
    write_tables(TABLES)
