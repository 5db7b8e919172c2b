"""Write the tables of the starter: ``python docs/results/starter_tables.py``."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from record import HERE, PLACES, ROOT, raw_runs
from tables import write_tables

from sparseshot.pages import table

AMOUNTS = (20, 100, 0.03, 0.1, 0.3, 1.0)
STARTER = {
    "tnbc-detect": "without-tnbc",
    "tnbc-segment": "without-tnbc-outlines",
    "brca_m2c-detect": "without-brca_m2c",
}
"""Method of left_out.toml for sets that the shipped starter has learned from."""


def starter_runs(place: str, amount: float) -> list[dict[str, Any]]:
    """Return the finished runs from the starter of a place, one for each seed."""
    dataset, task = place.split("-")
    method = STARTER.get(place, "starter")
    wanted = {"dataset": dataset, "task": task, "method": method, "fraction": amount}
    runs = raw_runs("starter.json").values()
    return [run for run in runs if "half" in run and all(run[key] == value for key, value in wanted.items())]


def scores(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the calibrated Dice or F1 of each run."""
    return [run["calibrated"]["pooled"] for run in runs]


def marks_table() -> str:
    """Return the score without marks, and the change by random marks: mean, lowest and number of seeds."""
    zero = json.loads((HERE / "starter-zero.json").read_text())
    rows = []
    for place, title in PLACES.items():
        every = [scores(starter_runs(place, amount)) for amount in AMOUNTS]
        if any(every):
            without = zero[place]["calibrated"]
            cells = [_change([each - without for each in own]) for own in every]
            rows.append([title, f"{without:.3f}", *cells])
    return table(["", "no marks", *(map(_named, AMOUNTS))], rows)


def _change(changes: list[float]) -> str:
    if not changes:
        return "–"
    return f"{fmean(changes):+.3f} ({min(changes):+.3f}, {len(changes)})"


def _named(amount: float) -> str:
    return f"{amount:.0f} marks" if amount > 1 else f"{amount:.0%}"


def thresholds() -> str:
    """Return how far the thresholds that runs choose are from the best ones."""
    runs = [each for place in PLACES for amount in AMOUNTS for each in starter_runs(place, amount)]
    if not runs:
        return "–"
    losses = [run["best"]["pooled"] - run["calibrated"]["pooled"] for run in runs]
    return (
        f"In these {len(runs)} runs the chosen threshold costs {fmean(losses):.3f} on average and "
        f"{max(losses):.3f} at most, against the best one, which only the truth reveals."
    )


def zero_table() -> str:
    """Return the scores of the starters without any marks."""
    scores = json.loads((HERE / "starter-zero.json").read_text())
    peers = {row["set"]: row for row in _rows("peers.json") if row["program"] == "InstanSeg"}
    rows = []
    for place, values in scores.items():
        dataset, task = place.split("-")
        peer = peers.get(dataset, {}).get("f1" if task == "detect" else "dice")
        learned = " *" if peers.get(dataset, {}).get("learned") else ""
        rows.append(
            [
                PLACES[place],
                "left out" if values["left_out"] else "shipped",
                *(f"{values[point]:.3f}" for point in ("calibrated", "half", "best")),
                "–" if peer is None else f"{peer:.3f}{learned}",
            ]
        )
    header = ["", "starter", "its threshold", "0.5", "best threshold", "InstanSeg"]
    return table(header, rows, text_columns=2)


def kinds_table() -> str:
    """Return F1 of the starter's own kinds without any marks."""
    scores = json.loads((HERE / "starter-zero.json").read_text())
    kinds = {place: values["kinds"] for place, values in scores.items() if "kinds" in values}
    names = next(iter(kinds.values()))
    rows = [
        [PLACES[place], *(f"{each[name]:.2f}" for name in names), f"{fmean(each.values()):.3f}"]
        for place, each in kinds.items()
    ]
    return table(["", *names, "mean"], rows)


def peers_table() -> str:
    """Return ours and InstanSeg on the same images."""
    rows = []
    for row in _rows("peers.json"):
        scores = ["–" if row.get(name) is None else f"{row[name]:.3f}" for name in ("f1", *_OUTLINE_SCORES)]
        name = f"{row['program']}{' *' if row['learned'] else ''}"
        rows.append([row["set"], name, *scores, f"{row['seconds_per_mm2']:.2f}"])
    header = ["", "", "F1, 3 µm", *_OUTLINE_SCORES.values(), "processor s/mm²"]
    return table(header, rows, text_columns=2)


def _rows(file: str) -> list[dict[str, Any]]:
    path = HERE / file
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


_OUTLINE_SCORES = {
    "dice": "Dice",
    "f1_at_iou_half": "F1, IoU 0.5",
    "f1_at_iou_tight": "F1, IoU 0.7",
    "pq": "PQ",
    "aji": "AJI",
}
_PAGE = ROOT / "docs" / "starter.md"
TABLES = {
    "starter-zero": (_PAGE, zero_table),
    "starter-kinds": (_PAGE, kinds_table),
    "starter-marks": (_PAGE, marks_table),
    "starter-thresholds": (_PAGE, thresholds),
    "starter-peers": (_PAGE, peers_table),
}


if __name__ == "__main__":
    write_tables(TABLES)
