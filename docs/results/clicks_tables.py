"""Write the tables of the price in clicks: ``python docs/results/clicks_tables.py``."""

import json
from itertools import pairwise
from statistics import fmean
from typing import Any

from record import HERE, ROOT, raw_runs
from tables import write_tables

from sparseshot.pages import table

PLACES = {
    "monuseg": "MoNuSeg",
    "crchisto": "CRCHisto",
    "tnbc": "TNBC, starter without it",
    "wbc_zheng": "WBC-Zheng",
    "synthetic": "synthetic slide",
}
LEFT_OUT = {("tnbc", "review"): "review-without-tnbc"}
"""Methods of left_out.toml for sets that the shipped starter has learned from."""

POLICIES = {
    "review": "suggest and review",
    "random": "marks at random",
    "errors": "marks on errors",
    "regions": "regions at random",
    "random-scratch": "marks at random, from scratch",
    "review-scratch": "suggest and review, from scratch",
}
BUDGETS = (20, 60, 100, 180, 540)


def curves(place: str, policy: str) -> list[list[dict[str, Any]]]:
    """Return the rounds of the finished runs, one list for each seed."""
    method = LEFT_OUT.get((place, policy), policy)
    return [
        run["rounds"]
        for run in raw_runs("clicks.json").values()
        if run["dataset"] == place and run["method"] == method and run["state"] == "done"
    ]


def _f1(record: dict[str, Any]) -> float:
    return float(record.get("calibrated", record["half"]))  # without held-out marks there is one half alone


def curve_table() -> str:
    """Return F1 after a number of clicks, the mean over seeds; a round ends a few clicks late."""
    zero = json.loads((HERE / "starter-zero.json").read_text())
    rows = []
    for place, title in PLACES.items():
        for policy, name in POLICIES.items():
            every = curves(place, policy)
            if not every:
                continue
            without = zero.get(f"{place}-detect", {}).get("calibrated")
            starts = [without] if without and not policy.endswith("scratch") else []
            cells = [f"{value:.3f}" for value in starts] or ["–"]
            for budget, after in zip(BUDGETS, (*BUDGETS[1:], 10**9), strict=True):
                reached = [_f1(e) for rounds in every for e in rounds if budget <= e["clicks"] < after]
                cells.append(f"{fmean(reached):.3f}" if reached else "–")
            rows.append([title, name, str(len(every)), *cells])
    header = ["", "", "seeds", "no clicks", *(f"{budget} clicks" for budget in BUDGETS)]
    return table(header, rows, text_columns=2)


def step_table() -> str:
    """Return how F1 changes from a round to the next."""
    rows = []
    for policy, name in POLICIES.items():
        changes = [
            _f1(after) - _f1(before)
            for place in PLACES
            for rounds in curves(place, policy)
            for before, after in pairwise(rounds)
        ]
        if changes:
            rows.append([name, str(len(changes)), f"{fmean(changes):+.3f}", f"{min(changes):+.3f}"])
    return table(["", "rounds", "mean change", "lowest"], rows)


_PAGE = ROOT / "docs" / "clicks.md"
TABLES = {"clicks": (_PAGE, curve_table), "clicks-steps": (_PAGE, step_table)}


if __name__ == "__main__":
    write_tables(TABLES)
