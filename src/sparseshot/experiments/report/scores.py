"""Sections of scores: a summary, one for each data set and task, and the paper's tables."""

from collections.abc import Mapping, Sequence
from functools import partial

from sparseshot.datasets import dataset_info
from sparseshot.experiments.experiment import Experiment
from sparseshot.experiments.paper import REPLACED
from sparseshot.experiments.report.comparisons import (
    FEW,
    Comparison,
    Row,
    Spread,
    bold,
    compare_table,
    percent,
)
from sparseshot.experiments.report.drawing import draw_curves
from sparseshot.experiments.report.ranking import area
from sparseshot.experiments.results import POINTS, Point, Results
from sparseshot.pages import Parts, Picture, escape, table

_POINT_TITLES: Mapping[Point, str] = {"half": "0.5", "calibrated": "calibrated"}
_LEGEND = (
    "*Bold: best at this threshold. Area: mean height of the curve over the fractions that the paper and all "
    "methods with the same plan have. –: not run yet; blank: not planned.*"
)


def summary_section(results: Results, comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
    """Return the title, the purpose, the state of the runs, and the headline table."""
    one = len(results.experiments) == 1
    parts: Parts = [f"# {escape(results.experiments[0].title) if one else 'Experiments'}"]
    for experiment in results.experiments:
        title = "" if one else f"**{escape(experiment.title)}.** "
        parts.append(title + escape(experiment.about))
    done, failed, missing = (len(results.in_state(state)) for state in ("done", "failed", "missing"))
    state = f"{done} of {len(results.results)} runs are done"
    state += f", **{failed} failed**" if failed else ""
    state += f", {missing} are missing and shown as –" if missing else ""
    parts.append(
        f"{state}. Scores are given at threshold 0.5, as in the paper, and at the threshold calibrated from "
        "held-out marks; ± is the standard error of the mean over seeds."
    )
    return parts + _headline(comparisons, focus)


def _headline(comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
    """Return the scores with few marks and with all, and how much of the latter is kept with few."""
    chosen = [(c, row) for c in comparisons for name in focus if (row := c.row(name)) is not None]
    chosen = [(comparison, row) for comparison, row in chosen if row.kept("half")]
    if not chosen:
        return []
    columns = [f for f in (*FEW, 1.0) if any(f in row.curves["half"] for _, row in chosen)]
    rows = []
    for comparison, row in chosen:
        scores = [" / ".join(dict.fromkeys(row.show(f, point) for point in POINTS)) for f in columns]
        lowest = [min(shares.values()) for point in POINTS if (shares := row.kept(point))]
        kept = " / ".join(f"{share:.0%}".replace("%", "\xa0%") for share in lowest)
        rows.append([escape(comparison.title), escape(row.method.title), *scores, kept])
    header = ["", "method", *map(percent, columns), "kept"]
    legend = (
        "*At threshold 0.5 / calibrated. Kept: the lowest score with 10 to 40\xa0% of the marks, as a share "
        "of the same method's score with all marks. –: not run yet; blank: not planned.*"
    )
    return ["## Summary", table(header, rows, text_columns=2), legend]


def comparison_section(comparison: Comparison) -> Parts:
    """Return the curves and scores of one data set and task."""
    parts: Parts = [f"## {escape(comparison.title)}"]
    paper = any(row.paper for row in comparison.rows)
    if any(row.curves["half"] for row in comparison.rows):
        caption = (
            f"{escape(comparison.title)}: {comparison.measure} on the test images over the fraction of the "
            "marks. Solid: ours, with the range over seeds" + ("; dashed: the paper." if paper else ".")
        )
        parts.append(Picture(f"{comparison.name}-curves.svg", caption, partial(draw_curves, comparison)))
    parts += [_scores(comparison), _LEGEND]
    if paper and comparison.subject.dataset in REPLACED:
        theirs = dataset_info(REPLACED[comparison.subject.dataset]).title
        parts.append(
            f"*The paper's numbers are of {theirs}, which {escape(comparison.subject.title)} replaces.*"
        )
    return parts


def _scores(comparison: Comparison) -> str:
    """Return all scores of a comparison as a table, with the area under each curve."""
    rows: list[list[str]] = []
    for row in comparison.rows:
        title = escape(row.method.title)
        for point, curve in row.curves.items():
            cells = [row.show(f, point, best=comparison.best(f, point)) for f in comparison.fractions]
            means = {fraction: spread.mean for fraction, spread in curve.items()}
            rows.append([title, _POINT_TITLES[point], *cells, *_area(comparison, row, point, means)])
            title = ""
        if row.paper:
            cells = [f"{row.paper[f]:.2f}" if f in row.paper else "" for f in comparison.fractions]
            rows.append(["", "the paper", *cells, *_area(comparison, row, "half", row.paper)])
    header = [comparison.measure, "threshold", *map(percent, comparison.fractions), "area", "points"]
    return table(header, rows, text_columns=2)


def _area(comparison: Comparison, row: Row, point: Point, means: Mapping[float, float]) -> tuple[str, str]:
    fractions = comparison.shared_fractions(row, point)
    value = area(means, fractions) if means else None
    return ("", "") if value is None else (f"{value:.3f}", str(len(fractions)))


def paper_table_section(experiment: Experiment, results: Results) -> Parts:
    """Return an experiment that reproduces a table of the paper, with the paper's numbers beside ours."""
    comparison = compare_table(experiment, results)
    recall = experiment.paper_table == "exclusive_recall"
    header = ["exclusive recall" if recall else comparison.measure]
    columns = [[escape(row.method.title) for row in comparison.rows]]
    for fraction in comparison.fractions:
        for point, title in _POINT_TITLES.items():
            best = comparison.best(fraction, point)
            header.append(f"{percent(fraction)}, {title}")
            columns.append([row.show(fraction, point, best=best) for row in comparison.rows])
    for fraction in sorted({fraction for row in comparison.rows for fraction in row.paper}):
        theirs = [Spread.of([row.paper[fraction]]) if row.paper else None for row in comparison.rows]
        best = max(spread.mean for spread in theirs if spread is not None)
        header.append("the paper" if recall else f"{percent(fraction)}, the paper")
        columns.append(["" if spread is None else bold(spread, best) for spread in theirs])
    cells = [list(row) for row in zip(*columns, strict=True)]
    return [f"## {escape(experiment.title)}", escape(experiment.about), table(header, cells)]
