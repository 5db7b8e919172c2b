"""F1 over the threshold, and exclusion over training."""

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure

from sparseshot.demo.judging import THRESHOLDS, Judged
from sparseshot.experiments.report.drawing import COLOURS, STYLE, as_svg

_OTHER_COLOUR = "#009E73"
_SIZE_INCHES = (5.2, 3.2)


def colour_of(loss: str) -> str:
    """Return the colour of a loss, the same as in reports."""
    return COLOURS.get(loss, _OTHER_COLOUR)


def draw_thresholds(judged: Judged) -> bytes:
    """Draw F1 over the threshold, with the two operating points a user has; SVG."""
    with rc_context(STYLE):
        canvas = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axis = canvas.subplots()
        axis.axvline(0.5, color="#9aa3ad", lw=1, ls=":")
        for loss, one in judged.losses.items():
            numbers = judged.numbers.losses[loss]
            axis.plot(THRESHOLDS, one.f1, color=colour_of(loss), lw=2, label=numbers.title)
            for point, marker in ((numbers.half, "s"), (numbers.calibrated, "o")):
                axis.plot(
                    point.threshold,
                    point.f1,
                    marker,
                    color=colour_of(loss),
                    markeredgecolor="white",
                    markersize=9,
                    clip_on=False,
                    zorder=3,
                )
        axis.set_xlabel("threshold")
        axis.set_ylabel("F1")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        canvas.legend(loc="outside upper left", ncols=len(judged.losses), fontsize=8.5)
        return as_svg(canvas)


def draw_exclusion(shares: Mapping[str, tuple[list[int], list[float]]]) -> bytes:
    """Draw the excluded share of the unannotated locations over the steps of training; SVG."""
    with rc_context(STYLE):
        canvas = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axis = canvas.subplots()
        for loss, (steps, share) in shares.items():
            axis.plot(steps, [100 * each for each in share], color=colour_of(loss), lw=2)
        axis.set_xlabel("training step")
        axis.set_ylabel("excluded, %")
        axis.set_ylim(bottom=0)
        return as_svg(canvas)


def excluded_shares(judged: Judged) -> dict[str, tuple[list[int], list[float]]]:
    """Return steps and excluded shares of the losses that exclude."""
    shares = {}
    for loss, one in judged.losses.items():
        lines = [line for line in one.log if line["excluded"]]
        if lines:
            shares[loss] = [int(line["step"]) for line in lines], [float(line["excluded"]) for line in lines]
    return shares
