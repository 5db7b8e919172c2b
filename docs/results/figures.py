"""Draw the figures of docs/results.md from the raw metrics: ``python docs/results/figures.py``."""

from matplotlib import rc_context
from matplotlib.figure import Figure
from tables import FRACTIONS, HERE, PLACES, comparisons, shares_of

from sparseshot.experiments.report.figures import COLORS, STYLE, as_svg, draw_shares
from sparseshot.experiments.results import POINTS

METHODS = ("adaptive", "ece", "ce", "focal", "huber", "oracle")


def draw_task(task: str) -> bytes:
    """Draw all data sets of a task, a column each, with the two operating points as rows."""
    places = [place for place in PLACES if place.endswith(task)]
    with rc_context(STYLE):
        canvas = Figure(figsize=(2.6 * len(places), 5.2), layout="constrained")
        axes = canvas.subplots(2, len(places), sharex=True, sharey=True)
        for column, place in enumerate(places):
            comparison = comparisons()[place]
            for axis, (point, title) in zip(axes[:, column], POINTS.items(), strict=True):
                for row in (row for name in METHODS if (row := comparison.row(name)) is not None):
                    colour, curve = COLORS[row.method.name], row.curves[point]
                    x, means = [100 * f for f in curve], [spread.mean for spread in curve.values()]
                    axis.plot(x, means, color=colour, marker="o", ms=3.5, lw=1.6, label=row.method.title)
                    x = [100 * f for f in row.paper]
                    axis.plot(x, list(row.paper.values()), color=colour, lw=0.9, ls="--", alpha=0.6)
                axis.set_ylim(0, 1)
                axis.set_title(f"{comparison.subject.title}, {title}", fontsize=8.5)
            axes[1, column].set_xlabel("marks, %")
        for axis in axes[:, 0]:
            axis.set_ylabel(comparison.measure)
        canvas.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return as_svg(canvas)


def main() -> None:
    """Write the figures."""
    for task in ("segment", "detect"):
        (HERE / f"{task}.svg").write_bytes(draw_task(task))
    shares = {
        comparisons()[place].title: [share for f in FRACTIONS for share in shares_of(place, f)]
        for place in PLACES
    }
    (HERE / "marked-share.svg").write_bytes(draw_shares(shares))


if __name__ == "__main__":
    main()
