"""Draw the figures of docs/results.md: ``python docs/results/figures.py [RECORD]``.

The curves come from docs/results/record.json; the exclusion and the example images from the folder of the
runs, if it is given.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from record import FRACTIONS, HERE, PLACES, comparisons, shares_of

from sparseshot.experiments import Results
from sparseshot.experiments.report.comparisons import compare
from sparseshot.experiments.report.figures import COLORS, FURTHER, STYLE, as_svg
from sparseshot.experiments.report.sections import exclusion_section, panel_section
from sparseshot.experiments.results import POINTS
from sparseshot.pages import pictures_of

METHODS = ("adaptive", "ece", "ece-nki", "ce", "focal", "huber")
FROM_RUNS = ("tnbc-segment-ece-exclusion.svg", "tnbc-segment-panels.jpg")
"""Figures that need the folder of the runs."""


def draw_task(task: str) -> bytes:
    """Draw all data sets of a task, a column each, with the two operating points as rows."""
    places = [place for place in PLACES if place.endswith(task) and place in comparisons()]
    if not places:
        return nothing()
    with rc_context(STYLE):
        canvas = Figure(figsize=(max(6.8, 2.6 * len(places)), 5.2), layout="constrained")
        axes = canvas.subplots(2, len(places), sharex=True, sharey=True, squeeze=False)
        for column, place in enumerate(places):
            comparison = comparisons()[place]
            for axis, (point, title) in zip(axes[:, column], POINTS.items(), strict=True):
                for row in (row for name in METHODS if (row := comparison.row(name)) is not None):
                    colour, curve = COLORS[row.method.name], row.curves[point]
                    x = [100 * f for f in curve]
                    means = [spread.mean for spread in curve.values()]
                    errors = [spread.error or 0.0 for spread in curve.values()]
                    axis.errorbar(
                        x, means, errors, color=colour, marker="o", ms=3.5, lw=1.6, label=row.method.title
                    )
                    x = [100 * f for f in row.paper]
                    axis.plot(x, list(row.paper.values()), color=colour, lw=0.9, ls="--", alpha=0.6)
                axis.set_ylim(0, 1)
                axis.set_title(f"{comparison.subject.title}, {title}", fontsize=8.5)
            axes[1, column].set_xlabel("marks, %")
        for axis in axes[:, 0]:
            axis.set_ylabel(comparison.measure)
        canvas.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return as_svg(canvas)


def draw_shares(estimates: Mapping[str, Sequence[Mapping[str, float]]]) -> bytes:
    """Draw estimated over true shares of marks, a colour for each comparison; SVG."""
    colors = [*COLORS.values(), *FURTHER]
    with rc_context(STYLE):
        canvas = Figure(figsize=(6.4, 4.2), layout="constrained")
        axis = canvas.subplots()
        axis.plot([0, 100], [0, 100], color="#9aa3ad", lw=1, ls="--", label="exact")
        for number, (title, points) in enumerate(estimates.items()):
            x, y = ([100 * point[end] for point in points] for end in ("true", "found"))
            color, marker = colors[number % len(colors)], "os^Dv"[number % 5]
            axis.plot(x, y, ls="none", marker=marker, color=color, ms=6, alpha=0.85, label=title)
        axis.set_xlabel("marked cells, %")
        axis.set_ylabel("estimate, %")
        axis.set_xlim(0, 102)
        axis.set_ylim(0, 102)
        canvas.legend(loc="outside right center")
        return as_svg(canvas)


def nothing() -> bytes:
    """Return the figure of runs that are missing."""
    canvas = Figure(figsize=(5.2, 0.6))
    canvas.text(0.5, 0.5, "not run yet", ha="center", va="center")
    return as_svg(canvas)


def main(folder: Path | None) -> None:
    """Write the figures."""
    for task in ("segment", "detect"):
        (HERE / f"{task}.svg").write_bytes(draw_task(task))
    shares = {
        comparisons()[place].title: [share for f in FRACTIONS for share in shares_of(place, f)]
        for place in PLACES
        if place in comparisons()
    }
    shares = {title: each for title, each in shares.items() if each}
    (HERE / "marked-share.svg").write_bytes(draw_shares(shares) if shares else nothing())
    if folder is not None:
        found = compare(Results.read(folder))
        pictures = pictures_of([*exclusion_section(found), *panel_section(found, restricted=False)])
        for name in FROM_RUNS:
            (HERE / name).write_bytes(pictures[name].content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
