"""The figures of a report: which there are, and what is said under them."""

from collections.abc import Sequence
from functools import partial

from sparseshot.experiments.folders import LOG
from sparseshot.experiments.panels import IMAGES, read_panel
from sparseshot.experiments.report.comparisons import Comparison, Row, percent
from sparseshot.experiments.report.document import Figure
from sparseshot.experiments.report.drawing import draw_curves, draw_exclusion, draw_panels, draw_shares
from sparseshot.experiments.report.estimates import read_estimate
from sparseshot.experiments.results import Result
from sparseshot.training.logs import numbers_of, read_log


def curves_figure(comparison: Comparison) -> Figure | None:
    """Return the figure of the curves; None before the first run is done."""
    if not any(row.curve("half") for row in comparison.rows):
        return None
    caption = (
        f"{comparison.title}: {comparison.measure} on the test images over the fraction of the marks. "
        "Solid: ours, the band from the lowest to the highest seed"
        + ("; dashed: the paper's." if any(row.paper for row in comparison.rows) else ".")
    )
    return Figure(f"{comparison.name}-curves", caption, partial(draw_curves, comparison))


def exclusion_figure(comparison: Comparison, row: Row) -> Figure | None:
    """Return the figure of what a method excluded while training; None where it excluded nothing."""
    logs = {fraction: read_log(runs[0].folder / LOG) for fraction, runs in row.results.items()}
    if not any(any(numbers_of(log, "excluded")) for log in logs.values()):
        return None
    caption = (
        f"{comparison.title}, {row.method.title}: what was excluded while training, and how right that was. "
        "With all marks given there is nothing hidden to exclude."
    )
    return Figure(f"{comparison.name}-{row.method.name}-exclusion", caption, partial(draw_exclusion, logs))


def share_figure(comparisons: Sequence[Comparison]) -> Figure | None:
    """Return the figure of estimated against true shares of marks; None where no loss estimates them."""
    estimates = {
        comparison.title: found
        for comparison in comparisons
        if (
            found := [
                estimate
                for row in comparison.rows
                for results in row.results.values()
                for result in results
                if (estimate := read_estimate(result)) is not None
            ]
        )
    }
    if not estimates:
        return None
    caption = "The share of the cells that is marked: the estimate at the end of training over the truth."
    return Figure("marked-share", caption, partial(draw_shares, estimates))


def panels_figure(comparison: Comparison, chosen: Sequence[Result]) -> Figure | None:
    """Return the figure of several methods' panels; None where there are none."""
    chosen = [result for result in chosen if read_panel(result.folder, IMAGES[0], "image") is not None]
    if not chosen:
        return None
    caption = (
        f"{comparison.title}, {percent(chosen[0].run.fraction)} of the marks: a training image above, "
        "a test image below. Green: found rightly, red: found wrongly, blue: missed."
    )
    return Figure(f"{comparison.name}-panels", caption, partial(draw_panels, chosen), kind="jpg")
