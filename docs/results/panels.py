"""Figures with a panel for each data set and one legend below."""

from collections.abc import Callable, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparseshot.experiments.report.figures import STYLE, as_svg


def draw_panels(
    places: Sequence[str],
    draw: Callable[[Axes, str], None],
    *,
    shape: tuple[int, int],
    height: float,
    legend_columns: int,
    sharey: bool = False,
) -> bytes:
    """Draw panels with a logarithmic x axis; SVG.

    Args:
        places: data sets, in reading order.
        draw: called with the axes and the data set of each panel.
        shape: rows and columns.
        height: of the figure in inches.
        legend_columns: of the legend, which is that of the first panel.
        sharey: give all panels the same y axis.
    """
    with rc_context(STYLE):
        canvas = Figure(figsize=(10, height), layout="constrained")
        axes = canvas.subplots(*shape, sharey=sharey, squeeze=False).flatten()
        for axis in axes[len(places) :]:
            axis.set_axis_off()
        for axis, place in zip(axes, places, strict=False):
            axis.set_xscale("log")
            draw(axis, place)
        handles = axes[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=legend_columns)
        return as_svg(canvas)
