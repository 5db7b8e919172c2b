"""What the runs of the record say, in sentences whose numbers come from docs/results/record.json."""

import re
from collections import Counter
from statistics import fmean
from typing import Any

from record import HERE, PLACES, RECORD, comparisons, pair, raw, raw_runs, results, row_of, runs_of, spread

from sparseshot.experiments.report.comparisons import Spread, percent
from sparseshot.experiments.results import POINTS
from sparseshot.pages import table

AGAIN = "again.json"
"""Raw metrics of runs of the record that were run a second time."""

OF_VERSION_0_1 = {"tnbc-segment-ece-0.1-s0": (0.413, 0.433)}
"""Scores that version 0.1.0 published and no later version repeats, at 0.5 and calibrated."""


def runs() -> str:
    """Return how many runs there are, and of which version and machine."""
    planned = results("record").results.values()
    done = sum(result.state == "done" for result in planned)
    every = [run for run in raw_runs().values() if run["state"] == "done"]
    kinds = Counter((run.get("machine", 0), run.get("version", 0)) for run in every)
    of = [
        _circumstances(*kind) + (f" ({n} runs)" if len(kinds) > 1 else "") for kind, n in kinds.most_common()
    ]
    text = f"**{done} of the {len(planned)} runs of `record` are done.** They are of {'; and of '.join(of)}."
    old = any(raw(RECORD)["versions"][version]["sparseshot"] == "0.1.0" for _, version in kinds)
    return text + (
        " **Training has changed since version 0.1.0**: later versions give other numbers." if old else ""
    )


def _circumstances(machine: int, version: int) -> str:
    values, names = raw(RECORD)["machines"][machine], raw(RECORD)["versions"][version]
    commit = values.get("commit")
    precision = values.get("precision")
    return (
        f"version {names['sparseshot']}, "
        + (
            f"commit `{commit[:10]}{'+' if commit.endswith('+') else ''}`"
            if commit
            else "commit not recorded"
        )
        + f", PyTorch {names['torch']}, on {values['gpu'] or values['processor']}, "
        + f"{values['cores']} cores, {values['threads']} thread{'s' * (values['threads'] > 1)} a run, "
        + (f"precision {precision}" if precision else "precision not recorded")
    )


def differences() -> str:
    """Return how our scores differ from the paper's, by loss."""
    rows = []
    for method in ("ece", "ce", "focal", "huber"):
        pairs: dict[Any, list[float]] = {point: [] for point in POINTS}
        for place in PLACES:
            row = row_of(place, method)
            for fraction, paper in row.paper.items() if row is not None else ():
                for point in POINTS:
                    if (ours := spread(place, method, fraction, point)) is not None:
                        pairs[point].append(ours.mean - paper)
        if pairs["half"]:
            cells = [f"{fmean(d):+.2f}, {min(d):+.2f} to {max(d):+.2f}" for d in pairs.values()]
            rows.append([f"`{method}`", str(len(pairs["half"])), *cells])
    return table(["", "numbers", "at 0.5: mean, range", "calibrated: mean, range"], rows)


def tried() -> str:
    """Return segmentation of TNBC in the record, as the paper has it, and what was tried to come nearer."""
    methods = ("ece", "ece-nki", "adaptive", "ce")
    rows = []
    for fraction in (0.1, 0.3):
        curves = [getattr(row_of("tnbc-segment", method), "paper", {}) for method in methods]
        paper = [f"{curve[fraction]:.2f}" if fraction in curve else "" for curve in curves]
        rows.append(["the paper", percent(fraction), *paper])
        rows.append(["the record", percent(fraction), *(pair("tnbc-segment", m, fraction) for m in methods)])
    long = pair("tnbc-segment", "ece-long", 0.1, "authors-size")
    rows.append(["five times the steps", percent(0.1), long, "", "", ""])
    large = {m: pair("tnbc-segment", f"{m}-large", 0.3, "authors-size") for m in ("ece", "ece-nki", "ce")}
    rows.append(["width 32, crops of 256², 2,500 steps", percent(0.3), *(large.get(m, "") for m in methods)])
    for fraction in (0.1, 0.3):
        folds = {m: _by_patients(m, fraction) for m in ("ece", "adaptive", "ce")}
        rows.append(["every patient tested once", percent(fraction), *(folds.get(m, "") for m in methods)])
    return table(["TNBC, Dice", "marks", *(f"`{m}`" for m in methods)], rows, text_columns=2)


def shortfall() -> str:
    """Return where and by how much we fall short of the paper otherwise."""
    lines = [_operating_point(), _against_cross_entropy(), _focal(), weak(), _errors(), _repeated()]
    return "\n".join(f"- {line}" for line in lines)


def _plain(place: str, method: str, fraction: float) -> str:
    """Return the scores without their errors."""
    return re.sub("\xa0±[0-9.]+", "", pair(place, method, fraction))


def _by_patients(method: str, fraction: float) -> str:
    """Return the scores over the folds; – unless all were run."""
    places = list(results("patients.toml").experiments[0].datasets)
    folds = [name.rpartition(":")[2] + "-segment" for name in places]
    found = []
    for point in POINTS:
        each = [spread(fold, method, fraction, point, "patients.toml") for fold in folds]
        if None in each:
            return "–"
        found.append(str(Spread.of([value.mean for value in each if value is not None])))
    return " / ".join(found).replace(" ±", "\xa0±")


def _operating_point() -> str:
    parts, recalls, others = [], [], []
    for place, title in PLACES.items():
        row, own = row_of(place, "ece"), spread(place, "ece", 0.1, "half")
        if row is not None and own is not None:
            paper = f" ({row.paper[0.1]:.2f})" if 0.1 in row.paper else ""
            parts.append(f"{title} {own.mean:.2f}{paper}")
            recalls += [run["half"].get("recall") or 0.0 for run in runs_of(place, "ece", 0.1)]
            others += [other.mean] if (other := spread(place, "adaptive", 0.1, "half")) is not None else []
    if not parts:
        return "**Threshold 0.5, 10\xa0% of the marks:** not run yet."
    text = f"**Threshold 0.5, 10\xa0% of the marks.** `ece` (the paper): {'; '.join(parts)}. Its recall is "
    text += f"{_range(recalls)}."
    return text + (f" `adaptive` has {_range(others)}." if others else "")


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _against_cross_entropy() -> str:
    counts = {}
    for method in ("ece", "ece-nki", "adaptive"):
        for point in POINTS:
            known = [
                (ours, theirs)
                for place in PLACES
                for fraction in (0.05, 0.1, 0.3)
                if (ours := spread(place, method, fraction, point)) is not None
                and (theirs := spread(place, "ce", fraction, point)) is not None
                and None not in (ours.error, theirs.error)
            ]
            above = sum(ours.exceeds(theirs) for ours, theirs in known)
            below = sum(theirs.exceeds(ours) for ours, theirs in known)
            counts[method, point] = f"{above} above, {below} below of {len(known)}"
    shown = [
        f"`{method}` at 0.5 {counts[method, 'half']}, calibrated {counts[method, 'calibrated']}"
        for method in ("ece", "ece-nki", "adaptive")
        if not counts[method, "half"].endswith(" of 0")
    ]
    if not shown:
        return "**Beside cross-entropy**: two seeds of both were not run yet."
    return (
        "**Beside cross-entropy at the same threshold**, 30\xa0% of the marks or fewer, by more than the "
        f"standard error of the difference: {'; '.join(shown)}. A lead at 0.5 that is gone after calibration "
        "is a shifted operating point."
    )


def _focal() -> str:
    parts, far = [], 0
    for place, title in PLACES.items():
        row, own = row_of(place, "focal"), spread(place, "focal", 0.1, "half")
        if row is not None and own is not None and 0.1 in row.paper:
            parts.append(f"{title} {_plain(place, 'focal', 0.1)} ({row.paper[0.1]:.2f})")
            far += abs(own.mean - row.paper[0.1]) > 0.1
    if not parts:
        return "**Focal loss**: not run yet."
    return (
        f"**Focal loss, 10\xa0% of the marks** (the paper): {'; '.join(parts)}. At 0.5 {far} of {len(parts)} "
        "differ from the paper by more than 0.1; why is not tested."
    )


def weak() -> str:
    """Return whether weak supervision differs from cross-entropy with 30 % of the marks."""
    both = [raw_runs().get(f"tnbc-detect-{method}-0.3-s0", {}) for method in ("weak-75", "ce")]
    if not all("half" in run for run in both):
        return "**Weak supervision** was not run yet with this version."
    rounds, plain = map(_both, both)
    text = f"**Weak supervision** with τ 0.75, two rounds, TNBC, F1, 30\xa0% of the marks: {rounds}; "
    text += f"cross-entropy: {plain}."
    return text + (" No prediction passes τ, so nothing is added to the marks." if rounds == plain else "")


def _errors() -> str:
    found = [spread(place, row.method.name, f, "calibrated") for place, row, f in _all_scores()]
    errors = [each.error for each in found if each is not None and each.error is not None]
    few = [
        run["calibrated"]
        for place, row, f in _all_scores()
        if f == 0.1
        for run in runs_of(place, row.method.name, f)
    ]
    widths = [(each["high"] - each["low"]) / 2 for each in few if each.get("high") is not None]
    text = "**Errors.** "
    if errors:
        text += f"Over seeds the standard error, calibrated, is {fmean(errors):.3f} on average, at most "
        text += f"{max(errors):.3f}. "
    if widths:
        text += (
            "The choice of test images is another, which no table shows: the bootstrap over them has a mean "
        )
        text += f"half-width of {fmean(widths):.2f} at 10\xa0% of the marks."
    return text if errors or widths else f"{text}No run is done yet."


def _all_scores() -> list[tuple[str, Any, float]]:
    return [
        (place, row, fraction)
        for place in PLACES
        if place in comparisons()
        for row in comparisons()[place].rows
        for fraction in row.curves["calibrated"]
    ]


def _repeated() -> str:
    text = "**Repeated.** "
    if (HERE / AGAIN).is_file():
        for name, run in raw_runs(AGAIN).items():
            if run["state"] == "done" and "half" in raw_runs().get(name, {}):
                text += f"`{name}`: {_both(raw_runs()[name])}, and a second time {_both(run)}. "
    else:
        text += "No run of this record was run a second time yet. "
    for name, published in OF_VERSION_0_1.items():
        run = raw_runs().get(name, {})
        is_new = raw(RECORD)["versions"][run.get("version", 0)]["sparseshot"] != "0.1.0"
        if "half" in run and is_new:
            old = " / ".join(f"{value:.3f}" for value in published)
            text += (
                f"Version 0.1.0 published {old} for `{name}`, which is {_both(run)} now, because training "
            )
            text += "has changed."
    return text.strip()


def _both(run: dict[str, Any]) -> str:
    return " / ".join(f"{run[point]['pooled']:.3f}" for point in POINTS)
