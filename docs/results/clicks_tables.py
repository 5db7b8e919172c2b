"""Write the tables and the figure of the price in clicks: ``python docs/results/clicks_tables.py``."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from panels import draw_panels
from record import HERE, ROOT, raw_runs
from starter_tables import score, starter_runs
from tables import write_tables

from sparseshot.pages import table

PLACES = {"tnbc": "TNBC", "monuseg": "MoNuSeg", "brca_m2c": "BRCA-M2C", "synthetic": "synthetic slide"}
POLICIES = {
    "random": ("marks at random", "#0072b2", "o-"),
    "errors": ("marks on errors", "#009e73", "^-"),
    "regions": ("regions at random", "#cc79a7", "s-"),
    "review": ("suggest and review", "#d55e00", "D-"),
    "random-scratch": ("marks at random, from scratch", "#56b4e9", "o--"),
    "review-scratch": ("suggest and review, from scratch", "#e69f00", "D--"),
}
SHARES = (0.90, 0.95, 1.0)
GOALS = [*(f"{share:.0%}" for share in SHARES), "95% from the starter"]
GRID = np.geomspace(20, 540, 200)


@cache
def curves(place: str, policy: str) -> list[list[dict[str, Any]]]:
    """Return the rounds of the finished runs, one list for each seed."""
    runs = raw_runs("clicks.json").values()
    return [
        run["rounds"]
        for run in runs
        if run["dataset"] == place and run["method"] == policy and run["state"] == "done"
    ]


def scores_at(place: str, policy: str, clicks: Sequence[float], point: str = "calibrated") -> list[float]:
    """Return F1 at numbers of clicks, interpolated over their logarithm, the mean over seeds."""
    every = [
        np.interp(
            np.log(clicks),
            [math.log(each["clicks"]) for each in rounds],
            [_f1(each, point) for each in rounds],
        )
        for rounds in curves(place, policy)
    ]
    return np.mean(every, axis=0).tolist() if every else []


def _f1(record: dict[str, Any], point: str) -> float:
    return float(record.get(point, record["half"]))  # without held-out marks there is one half alone


def full(place: str, method: str = "ce-scratch") -> float | None:
    """Return F1 with all marks: cross-entropy from scratch, or from the starter."""
    runs = starter_runs(f"{place}-detect", method, 1.0) if place != "synthetic" else []
    return score(runs, "calibrated") if runs else None


def goals(place: str) -> list[float]:
    """Return F1 at each of the goals; none without runs with all marks."""
    everything, best = full(place), full(place, "starter")
    if everything is None or best is None:
        return []
    return [*(share * everything for share in SHARES), 0.95 * best]


def clicks_for(place: str, policy: str, goal: float) -> float | None:
    """Return the clicks from which F1 stays at a goal or above; None if it does not get there."""
    values = np.array(scores_at(place, policy, GRID.tolist()))
    below = np.flatnonzero(values < goal)
    if not len(below):
        return float(GRID[0])
    return float(GRID[below[-1] + 1]) if below[-1] + 1 < len(GRID) else None


def shown_clicks(clicks: float | None) -> str:
    """Return a number of clicks; the first and the last are bounds."""
    if clicks is None:
        return f"> {GRID[-1]:.0f}"
    return f"≤ {GRID[0]:.0f}" if clicks <= GRID[0] else f"{clicks:.0f}"


def curve_table() -> str:
    """Return F1 over clicks, and the area under it."""
    rows = []
    for place, title in PLACES.items():
        for policy, (name, _, _) in POLICIES.items():
            values = scores_at(place, policy, [20, 60, 180, 540])
            if values:
                area = fmean(scores_at(place, policy, GRID.tolist()))
                seeds = len(curves(place, policy))
                rows.append([title, name, str(seeds), *(f"{each:.3f}" for each in values), f"{area:.3f}"])
    return table(["", "", "seeds", "20", "60", "180", "540 clicks", "area"], rows, text_columns=2)


def price_table() -> str:
    """Return the clicks needed for shares of full supervision."""
    rows = []
    for place, title in PLACES.items():
        for policy, (name, _, _) in POLICIES.items():
            prices = [shown_clicks(clicks_for(place, policy, goal)) for goal in goals(place)]
            if prices and curves(place, policy):
                rows.append([title, name, *prices])
    return table(["", "", *GOALS], rows, text_columns=2)


def ratio_table() -> str:
    """Return the clicks of review as a share of those of random marks."""
    rows = []
    for place, title in PLACES.items():
        for end in ("", "-scratch"):
            if goals(place) and curves(place, f"random{end}") and curves(place, f"review{end}"):
                ratios = [_ratio(place, end, goal) for goal in goals(place)]
                rows.append([title, "from scratch" if end else "from the starter", *ratios])
    return table(["", "", *GOALS], rows, text_columns=2)


def _ratio(place: str, end: str, goal: float) -> str:
    random, review = (clicks_for(place, f"{policy}{end}", goal) for policy in ("random", "review"))
    if review is None or (random is not None and random <= GRID[0]):
        return "–"
    bound = "≤ " if review <= GRID[0] else ""
    return f"< {review / GRID[-1]:.2f}" if random is None else f"{bound}{review / random:.2f}"


def step_table() -> str:
    """Return how F1 changes from a round to the next, over all runs from the starter."""
    rows = []
    for policy, (name, _, _) in POLICIES.items():
        changes = [
            _f1(after, "calibrated") - _f1(before, "calibrated")
            for place in PLACES
            for rounds in curves(place, policy)
            for before, after in pairwise(rounds)
        ]
        if changes:
            rows.append([name, str(len(changes)), f"{fmean(changes):+.3f}", f"{min(changes):+.3f}"])
    return table(["", "rounds", "mean change", "lowest"], rows)


def draw_clicks() -> bytes:
    """Draw F1 over clicks; SVG."""
    places = [place for place in PLACES if any(curves(place, policy) for policy in POLICIES)]
    rows = math.ceil(len(places) / 2)
    return draw_panels(places, _draw_place, shape=(rows, 2), height=3.2 * rows + 0.4, legend_columns=4)


def _draw_place(axis: Axes, place: str) -> None:
    for policy, (name, colour, line) in POLICIES.items():
        if every := curves(place, policy):
            clicks = zip(*([each["clicks"] for each in rounds] for rounds in every), strict=True)
            x = [fmean(each) for each in clicks]
            axis.plot(x, scores_at(place, policy, x), line, color=colour, ms=4, lw=1.6, label=name)
    if (everything := full(place)) is not None:
        axis.axhline(everything, color="0.5", lw=1, ls=":", label="cross-entropy, all marks")
        axis.axhline(0.95 * everything, color="0.7", lw=1, ls="--", label="95 % of it")
    axis.set_xticks([20, 60, 180, 540], ["20", "60", "180", "540"], minor=False)
    axis.minorticks_off()
    axis.set_title(PLACES[place])
    axis.set_xlabel("clicks")
    axis.set_ylabel("F1, calibrated")


_PAGE = ROOT / "docs" / "clicks.md"
TABLES = {
    "clicks": (_PAGE, curve_table),
    "clicks-price": (_PAGE, price_table),
    "clicks-ratio": (_PAGE, ratio_table),
    "clicks-steps": (_PAGE, step_table),
}


if __name__ == "__main__":
    assert raw_runs("clicks.json")
    write_tables(TABLES)
    (HERE / "clicks.svg").write_bytes(draw_clicks())
