"""Charts of the demo: F1 over the threshold, and exclusion during training."""

from matplotlib import rc_context
from matplotlib.figure import Figure

from sparseshot.demo.judging import CURVE_THRESHOLDS, Judged
from sparseshot.experiments.report.drawing import COLOURS, STYLE, as_svg
from sparseshot.training.logs import numbers_of

_OTHER_COLOUR = "#009E73"
_SIZE_INCHES = (5.2, 3.2)


def draw_thresholds(judged: Judged) -> bytes:
    """Draw F1 over the threshold, with the two operating points; SVG."""
    with rc_context(STYLE):
        canvas = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axis = canvas.subplots()
        axis.axvline(0.5, color="#9aa3ad", lw=1, ls=":")
        for loss, one in judged.losses.items():
            numbers, colour = judged.numbers["losses"][loss], COLOURS.get(loss, _OTHER_COLOUR)
            axis.plot(CURVE_THRESHOLDS, one.f1, color=colour, lw=2, label=numbers["title"])
            for point, marker in (("half", "s"), ("calibrated", "o")):
                x, y = numbers[point]["threshold"], numbers[point]["f1"]
                line = axis.plot(x, y, marker, color=colour, markeredgecolor="white", markersize=9, zorder=3)
                line[0].set_clip_on(False)
        axis.set_xlabel("threshold")
        axis.set_ylabel("F1")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        canvas.legend(loc="outside upper left", ncols=len(judged.losses), fontsize=8.5)
        return as_svg(canvas)


def draw_excluded_share(judged: Judged) -> bytes:
    """Draw the excluded share of the unannotated locations over the training steps; SVG."""
    with rc_context(STYLE):
        canvas = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axis = canvas.subplots()
        for loss, one in judged.losses.items():
            lines = [line for line in one.log if line.get("excluded")]
            share = [100 * value for value in numbers_of(lines, "excluded")]
            axis.plot(numbers_of(lines, "step"), share, color=COLOURS.get(loss, _OTHER_COLOUR), lw=2)
        axis.set_xlabel("training step")
        axis.set_ylabel("excluded, %")
        axis.set_ylim(bottom=0)
        return as_svg(canvas)
