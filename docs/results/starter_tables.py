"""Write the tables and the figure of the starter: ``python docs/results/starter_tables.py``."""

import json
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from panels import draw_panels
from record import HERE, PLACES, ROOT, raw_runs
from tables import write_tables

from sparseshot.pages import table

AMOUNTS = (100, 0.03, 0.1, 0.3, 1.0)
STARTS = {"starter": ("from the starter", "#d55e00"), "scratch": ("from scratch", "#0072b2")}


def starter_runs(place: str, method: str, amount: float) -> list[dict[str, Any]]:
    """Return the finished runs of a place, one for each seed."""
    dataset, task = place.split("-")
    wanted = {"dataset": dataset, "task": task, "method": method, "fraction": amount}
    runs = raw_runs("starter.json").values()
    return [run for run in runs if "half" in run and all(run[key] == value for key, value in wanted.items())]


def score(runs: list[dict[str, Any]], point: str) -> float:
    """Return Dice or F1, the mean over seeds."""
    return fmean(run[point]["pooled"] for run in runs)


def starter_table() -> str:
    """Return the scores from the starter and from scratch, by the number of marks."""
    rows = []
    for place, title in PLACES.items():
        everything = starter_runs(place, "ce-scratch", 1.0)
        if not everything:
            continue
        for method, (name, _) in STARTS.items():
            cells = [_shown(starter_runs(place, method, amount), everything) for amount in AMOUNTS]
            rows.append([title, name, *cells, _shown(everything) if method == "starter" else ""])
    amounts = ["100 marks", *(f"{amount:.0%}" for amount in AMOUNTS[1:])]
    return table(["", "", *amounts, "cross-entropy, all marks"], rows, text_columns=2)


def _shown(runs: list[dict[str, Any]], everything: list[dict[str, Any]] | None = None) -> str:
    if not runs:
        return "–"
    share = f", {score(runs, 'calibrated') / score(everything, 'calibrated'):.0%}" if everything else ""
    return f"{score(runs, 'half'):.2f} / {score(runs, 'calibrated'):.2f}{share}"


def oracle_table() -> str:
    """Return what the oracle reaches from the same crops, beside the adaptive loss; both from the starter."""
    rows = []
    for place, amount, name in (("tnbc-segment", 0.1, "10%"), ("monuseg-segment", 100, "100 marks")):
        everything = starter_runs(place, "ce-scratch", 1.0)
        methods = [starter_runs(place, method, amount) for method in ("starter", "oracle")]
        rows.append([PLACES[place], name, *(_shown(runs, everything) for runs in methods)])
    return table(["", "", "adaptive", "oracle"], rows, text_columns=2)


def starter_targets_table() -> str:
    """Return what was intended of the starter, and where it is not met."""
    aims: dict[str, tuple[str, float, float]] = {
        "detection with 10 % of the marks: 97 % of cross-entropy with all marks": ("detect", 0.1, 0.97),
        "detection with 3 %: 92 %": ("detect", 0.03, 0.92),
        "detection with 100 marks: 88 %": ("detect", 100, 0.88),
        "segmentation with 10 %: 95 %": ("segment", 0.1, 0.95),
        "segmentation with 100 marks: 90 %": ("segment", 100, 0.90),
    }
    rows = [_target(aim, task, amount, _share, least=share) for aim, (task, amount, share) in aims.items()]
    for amount in AMOUNTS:
        name = "100 marks" if amount > 1 else f"{amount:.0%}"
        for task in ("detect", "segment"):
            aim = f"{task}, {name}: at most 0.01 below scratch, calibrated"
            rows.append(_target(aim, task, amount, partial(_lead, amount=amount), least=-0.01))
    return table(["target", "met", "not met"], [row for row in rows if row], text_columns=3)


def _target(
    aim: str,
    task: str,
    amount: float,
    measure: Callable[[str, list[dict[str, Any]]], float],
    *,
    least: float,
) -> list[str]:
    places = {
        place: runs
        for place in PLACES
        if place.endswith(task)
        and (runs := starter_runs(place, "starter", amount))
        and starter_runs(place, "ce-scratch", 1.0)
        and ("scratch" not in aim or starter_runs(place, "scratch", amount))
        and ("scratch" in aim or not place.startswith("wbc"))
    }
    if not places:
        return []
    values = {place: measure(place, runs) for place, runs in places.items()}
    missed = [f"{PLACES[place]} ({value:.3f})" for place, value in values.items() if value < least]
    return [aim, f"{len(places) - len(missed)} of {len(places)}", "; ".join(missed) or "–"]


def _share(place: str, runs: list[dict[str, Any]]) -> float:
    return score(runs, "calibrated") / score(starter_runs(place, "ce-scratch", 1.0), "calibrated")


def _lead(place: str, runs: list[dict[str, Any]], amount: float) -> float:
    scratch = starter_runs(place, "scratch", amount)
    seeds = {run["seed"] for run in scratch}
    same = [run for run in runs if run["seed"] in seeds]
    return score(same, "calibrated") - score(scratch, "calibrated")


def threshold_table() -> str:
    """Return how far the calibrated threshold and 0.5 are from the best one, over all runs."""
    rows = []
    for method, (name, _) in STARTS.items():
        runs = [r for r in raw_runs("starter.json").values() if r["method"] == method and "half" in r]
        for point, title in (("half", "0.5"), ("calibrated", "calibrated")):
            losses = [run["best"]["pooled"] - run[point]["pooled"] for run in runs]
            rows.append([name, title, str(len(runs)), f"{fmean(losses):.3f}", f"{max(losses):.3f}"])
    return table(["", "threshold", "runs", "mean loss", "largest loss"], rows, text_columns=2)


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


def marks_table() -> str:
    """Return the score after training with few random marks, less that without marks."""
    runs = _rows("starter-marks.json")
    zero = {(run["set"], run["task"]): run["score"] for run in runs if run["marks"] == 0}
    amounts = sorted({run["marks"] for run in runs if run["marks"]}, key=lambda amount: (amount < 1, amount))
    rows = []
    for (dataset, task), without in zero.items():
        cells = []
        for amount in amounts:
            own = [r["score"] for r in runs if (r["set"], r["task"], r["marks"]) == (dataset, task, amount)]
            cells.append(f"{fmean(own) - without:+.3f} ({len(own)})" if own else "–")
        place = f"{dataset}-{task}"
        rows.append([PLACES[place], f"{without:.3f}", *cells])
    names = [f"{amount:.0f} marks" if amount > 1 else f"{amount:.0%}" for amount in amounts]
    return table(["", "no marks", *names], rows)


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


def draw_starter() -> bytes:
    """Draw the calibrated score over the number of marks, from the starter and from scratch; SVG."""
    by_task = sorted(PLACES, key=lambda place: place.split("-")[1])
    places = [place for place in by_task if starter_runs(place, "starter", 100)]
    return draw_panels(places, _draw_place, shape=(2, 4), height=5.2, legend_columns=3, sharey=True)


def _draw_place(axis: Axes, place: str) -> None:
    for method, (title, colour) in STARTS.items():
        amounts = [runs for amount in AMOUNTS if (runs := starter_runs(place, method, amount))]
        points = [(fmean(run["marks"] for run in runs), score(runs, "calibrated")) for runs in amounts]
        x, y = zip(*sorted(points), strict=True) if points else ((), ())
        axis.plot(x, y, "o-", color=colour, ms=3.5, lw=1.6, label=title)
    if everything := starter_runs(place, "ce-scratch", 1.0):
        level = score(everything, "calibrated")
        axis.axhline(level, color="0.5", lw=1, ls="--", label="cross-entropy, all marks")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_title(PLACES[place], fontsize=8.5)
    axis.set_xlabel("marks in training")
    axis.set_ylim(0.4, 1)
    if axis.get_subplotspec().is_first_col():
        axis.set_ylabel("F1, calibrated" if place.endswith("detect") else "Dice, calibrated")


_OUTLINE_SCORES = {
    "dice": "Dice",
    "f1_at_iou_half": "F1, IoU 0.5",
    "f1_at_iou_tight": "F1, IoU 0.7",
    "pq": "PQ",
    "aji": "AJI",
}
_PAGE = ROOT / "docs" / "starter.md"
TABLES = {
    "starter": (_PAGE, starter_table),
    "starter-targets": (_PAGE, starter_targets_table),
    "starter-oracle": (_PAGE, oracle_table),
    "starter-thresholds": (_PAGE, threshold_table),
    "starter-zero": (_PAGE, zero_table),
    "starter-kinds": (_PAGE, kinds_table),
    "starter-marks": (_PAGE, marks_table),
    "starter-peers": (_PAGE, peers_table),
}


if __name__ == "__main__":
    write_tables(TABLES)
    (HERE / "starter.svg").write_bytes(draw_starter())
