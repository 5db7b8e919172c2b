"""Figures: curves over the fraction of the marks, exclusion during training, example images, kinds."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparseshot.experiments.report.comparisons import Comparison, percent
from sparseshot.experiments.results import COLUMNS, IMAGES, POINTS, Result
from sparseshot.metrics.kind_counts import NOTHING
from sparseshot.models.kinds import OTHER
from sparseshot.training.logs import numbers_of

# Okabe and Ito's colours, which colour-blind readers can tell apart; a loss has the same one everywhere.
COLORS = {
    "ece": "#0072B2",
    "adaptive": "#E69F00",
    "ce": "#D55E00",
    "focal": "#009E73",
    "huber": "#CC79A7",
    "oracle": "#222222",
    "ece-nki": "#56B4E9",
}
_MARKERS = {"ece": "o", "adaptive": "P", "ce": "s", "focal": "^", "huber": "D", "oracle": "*"}
FURTHER = ("#7a5195", "#8c6d31", "#66a61e", "#b2182b", "#888888")
STYLE: Any = {  # the type of its keys differs between versions
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ed",
    "xtick.color": "#5b6470",
    "ytick.color": "#5b6470",
    "legend.frameon": False,
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # a short list: it is repeated for each text
    "svg.fonttype": "none",  # text as text: a fifth of the size, and searchable
    "svg.hashsalt": "sparseshot",  # the same figure is the same file
}
_SHOWN_PX = 160
_LEGEND_COLUMNS = 3
_EXCLUSION = {
    "excluded": "excluded unannotated locations, %",
    "exclusion_precision": "precision: excluded locations in cells, %",
    "exclusion_recall": "recall: unmarked cells excluded, %",
}


def draw_curves(comparison: Comparison) -> bytes:
    """Draw Dice or F1 over the fraction of the marks at both operating points, the paper's dashed; SVG."""
    shown = [fraction for fraction in comparison.fractions if fraction <= 1]  # above 1 are numbers of marks
    further = iter(FURTHER * (1 + len(comparison.rows) // len(FURTHER)))
    colors = [COLORS.get(row.method.name) or next(further) for row in comparison.rows]
    with rc_context(STYLE):
        height = 3.8 + 0.2 * ((len(comparison.rows) + 1) // _LEGEND_COLUMNS)
        canvas = Figure(figsize=(9.6, height), layout="constrained")
        axes = canvas.subplots(1, 2, sharey=True)
        for axis, (point, title) in zip(axes, POINTS.items(), strict=True):
            for row, color in zip(comparison.rows, colors, strict=True):
                curve = {f: spread for f, spread in row.curves[point].items() if f in shown}
                means = [spread.mean for spread in curve.values()]
                low, high = (
                    [spread.mean + sign * (spread.error or 0.0) for spread in curve.values()]
                    for sign in (-1, 1)
                )
                x = [100 * fraction for fraction in curve]
                marker = _MARKERS.get(row.method.name, "v")
                label = row.method.title
                axis.plot(x, means, color=color, marker=marker, markersize=5, lw=1.8, label=label)
                axis.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
                x = [100 * fraction for fraction in row.paper]
                axis.plot(x, list(row.paper.values()), color=color, lw=1, ls="--", alpha=0.65)
            axis.set_title(title)
            axis.set_xlabel("fraction of the marks, %")
            axis.set_xticks([100 * fraction for fraction in shown])
            axis.set_ylim(0, 1)
        if any(row.paper for row in comparison.rows):
            axes[0].plot([], [], color="#666666", lw=1, ls="--", label="the paper")
        axes[0].set_ylabel(comparison.measure)
        handles = axes[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=_LEGEND_COLUMNS)
        return as_svg(canvas)


def draw_exclusion(logs: Mapping[float, Sequence[Mapping[str, str]]]) -> bytes:
    """Draw excluded share, its precision and its recall over training, a line for each fraction; SVG."""
    with rc_context(STYLE):
        canvas = Figure(figsize=(9.6, 3.0), layout="constrained")
        axes = canvas.subplots(1, 3)
        for axis, (column, title) in zip(axes, _EXCLUSION.items(), strict=True):
            for fraction, log in logs.items():
                lines = [line for line in log if line.get(column)]
                values = [100 * value for value in numbers_of(lines, column)]
                color = colormaps["viridis"](0.85 * fraction)
                axis.plot(numbers_of(lines, "step"), values, color=color, lw=1.4, label=percent(fraction))
            axis.set_title(title, fontsize=8.5)
            axis.set_xlabel("step")
            axis.set_ylim(bottom=0, top=None if column == "excluded" else 101)
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", title="marks")
        return as_svg(canvas)


def draw_panels(chosen: Sequence[Result]) -> bytes:
    """Draw the panels of several runs, a training image above and a test image below; JPEG."""
    titles = ["image", "marks", "ground truth"]
    titles += [
        f"{result.run.method.name}, {point}" for result in chosen for point in ("at 0.5", "calibrated")
    ]
    with rc_context(STYLE):
        canvas = Figure(figsize=(1.5 * len(titles), 1.62 * len(IMAGES)), layout="constrained")
        axes = canvas.subplots(len(IMAGES), len(titles))
        for row, image in enumerate(IMAGES):
            panels = [chosen[0].panel(image, column) for column in COLUMNS[:3]]
            panels += [result.panel(image, column) for result in chosen for column in COLUMNS[3:]]
            for axis, panel, title in zip(axes[row], panels, titles, strict=True):
                axis.set_axis_off()
                if panel is not None:
                    axis.imshow(_middle(panel))
                    axis.set_title(title, fontsize=7.5)
        file = io.BytesIO()
        canvas.savefig(file, format="jpg", dpi=130, pil_kwargs={"quality": 80})
        return file.getvalue()


def _middle(panel: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the middle of a panel, where cells are large enough to be seen in a row of panels."""
    top, left = (max(0, (side - _SHOWN_PX) // 2) for side in panel.shape[:2])
    return panel[top : top + _SHOWN_PX, left : left + _SHOWN_PX]


def as_svg(canvas: Figure) -> bytes:
    """Return a figure as an SVG file."""
    file = io.BytesIO()
    canvas.savefig(file, format="svg", metadata={"Date": None})  # no date: the same figure, the same file
    return _smaller(file.getvalue().decode()).encode()


def _smaller(svg: str) -> str:
    """Return Matplotlib's file with coordinates in hundredths of a point, no indentation and few ids."""
    svg = re.sub(r"\b([1-9]\d*\.\d\d)\d{3,}", r"\1", svg)
    svg = re.sub(r'<g id="(line2d|patch|text|xtick|ytick)_\d+">', "<g>", svg)
    return re.sub(r"\s*\n\s*", "\n", svg)


def confusion(runs: Sequence[Result]) -> NDArray[np.float64]:
    """Return the shares of each true kind that are found as each kind, all seeds together."""
    counts = np.sum([run.kinds["confusion"] for run in runs if run.kinds], axis=0)
    return np.asarray(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))


def draw_confusions(kinds: Sequence[str], methods: Mapping[str, Sequence[Result]]) -> bytes:
    """Draw the confusion matrix of each method; SVG."""
    names = [*kinds, OTHER, NOTHING]
    side = 0.55 * len(names) + 1.2
    with rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(side * len(methods), side), layout="constrained")
        grid = figure.subplots(1, len(methods), squeeze=False)[0]
        for axes, (method, runs) in zip(grid, methods.items(), strict=True):
            share = confusion(runs)
            axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
            for (row, column), value in np.ndenumerate(share):
                color = "white" if value > 0.6 else "#222222"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7)
            axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
            axes.set_yticks(range(len(names)), names)
            axes.set(xlabel="found as", ylabel="is", title=method)
        return as_svg(figure)
