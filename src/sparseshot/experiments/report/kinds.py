"""Section of the report about kinds: precision, recall and F1 of each, and which are taken for which."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparseshot.experiments.report.comparisons import percent
from sparseshot.experiments.report.figures import STYLE
from sparseshot.experiments.results import Result, Results
from sparseshot.metrics.kind_counts import NOTHING
from sparseshot.models.kinds import OTHER
from sparseshot.pages import Parts, Picture, escape, table

_LEGEND = (
    "*Test images, at the threshold of each run, the mean over its seeds. A cell is right if its place and "
    "its kind are. In parentheses the 95\xa0% bootstrap interval over images; precision\xa0/\xa0recall. "
    "Any cell: F1 of places, whatever the kind.*"
)


def kinds_section(results: Results) -> Parts:
    """Return the scores of the runs that tell kinds apart; nothing if there are none."""
    groups: dict[tuple[str, tuple[str, ...]], dict[tuple[str, float], list[Result]]] = {}
    for result in results.results.values():
        if (scores := _scores(result)) is not None:
            place = result.run.subject.title, tuple(scores["kinds"])
            own = groups.setdefault(place, {})
            own.setdefault((result.run.method.title, result.run.fraction), []).append(result)
    parts: Parts = []
    for number, ((title, kinds), own) in enumerate(groups.items()):
        header = ["method", "marks", "seeds", *map(escape, kinds), "mean", "any cell"]
        rows = [
            [escape(method), percent(fraction), str(len(runs)), *_row(runs, kinds)]
            for (method, fraction), runs in own.items()
        ]
        last = {method: runs for (method, _), runs in sorted(own.items(), key=lambda pair: pair[0][1])}
        caption = "Found as (columns) what is (rows), as a share of the row; the runs with most marks."
        picture = Picture(f"kinds-{number}.svg", caption, partial(draw_confusions, last))
        parts += [f"### {escape(title)}", table(header, rows), picture]
    return ["## Kinds", *parts, _LEGEND] if parts else []


def _scores(result: Result) -> Mapping[str, Any] | None:
    return None if result.metrics is None else result.metrics["evaluation"].get("kinds")


def _row(runs: Sequence[Result], kinds: Sequence[str]) -> list[str]:
    """Return F1 of each kind, their mean, and F1 of any cell."""
    scores = [own for run in runs if (own := _scores(run)) is not None]
    f1, precision, recall, intervals = (
        np.array([own[name] for own in scores], float).mean(axis=0)
        for name in ("f1", "precision", "recall", "intervals")
    )
    shown = [
        f"{f1[k]:.3f}{_interval(*intervals[k])}, {precision[k]:.2f}\xa0/\xa0{recall[k]:.2f}"
        for k in range(len(kinds))
    ]
    mean = np.mean([own["mean_f1"] for own in scores])
    shown.append(f"{mean:.3f}{_interval(*np.array([own['mean_interval'] for own in scores], float).mean(0))}")
    any_cell = [score for run in runs if (score := run.score("calibrated") or run.score("half")) is not None]
    return [*shown, f"{np.mean(any_cell):.3f}"]


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"\xa0({low:.2f}–{high:.2f})"


def confusion(runs: Sequence[Result]) -> NDArray[np.float64]:
    """Return the shares of each true kind that are found as each kind, all seeds together."""
    counts = np.sum([own["confusion"] for run in runs if (own := _scores(run)) is not None], axis=0)
    return np.asarray(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))


def draw_confusions(methods: Mapping[str, Sequence[Result]]) -> bytes:
    """Draw the confusion matrix of each method; SVG."""
    first = next(own for runs in methods.values() if (own := _scores(runs[0])) is not None)
    names = [*first["kinds"], OTHER, NOTHING]
    side = 0.55 * len(names) + 1.2
    with rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(side * len(methods), side), layout="constrained")
        for axes, (method, runs) in zip(
            figure.subplots(1, len(methods), squeeze=False)[0], methods.items(), strict=True
        ):
            share = confusion(runs)
            axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
            for row, column in np.ndindex(share.shape):
                color = "white" if share[row, column] > 0.6 else "#222222"
                axes.text(
                    column,
                    row,
                    f"{share[row, column]:.2f}",
                    ha="center",
                    va="center",
                    color=color,
                    fontsize=7,
                )
            axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
            axes.set_yticks(range(len(names)), names)
            axes.set_xlabel("found as")
            axes.set_ylabel("is")
            axes.set_title(method)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "sparseshot"})
    return file.getvalue()
