"""Sections of scores: a summary, one for each data set and task, and the paper's tables."""

from collections.abc import Mapping, Sequence
from functools import partial

from sparseshot.experiments.experiment import Experiment
from sparseshot.experiments.paper import REPLACEMENTS, SETS, paper_table
from sparseshot.experiments.report.comparisons import (
    FEW,
    MEASURES,
    Comparison,
    Row,
    Spread,
    make_row,
    percent,
)
from sparseshot.experiments.report.drawing import draw_curves
from sparseshot.experiments.report.statistics import area
from sparseshot.experiments.results import POINTS, Point, Result, Results
from sparseshot.pages import Parts, Picture, escape, table

MISSING = {"missing": "–", "failed": "failed", "done": "", "": ""}
"""Entry of a table for a run without a score."""

_POINT_TITLES: Mapping[Point, str] = {"half": "0.5", "calibrated": "calibrated"}
_LEGEND = (
    "*Bold: best at this threshold. Area: mean height of the curve over the fractions that the paper and all "
    "methods with the same plan have. –: not run yet; blank: not planned.*"
)


def summary(results: Results, comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
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
        "held-out marks; ± is half the range over seeds."
    )
    return parts + _headline(comparisons, focus)


def _headline(comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
    """Return the scores with few marks and with all, and how much of the latter is kept with few."""
    chosen = [(c, row) for c in comparisons for name in focus if (row := c.row(name)) is not None]
    chosen = [(comparison, row) for comparison, row in chosen if row.kept("half")]
    if not chosen:
        return []
    columns = [f for f in (*FEW, 1.0) if any(f in row.curve("half") for _, row in chosen)]
    rows = []
    for comparison, row in chosen:
        curves = [row.curve(point) for point in POINTS]
        scores = [" / ".join(str(c[f]) for c in curves if f in c) or _absent(row, f) for f in columns]
        lowest = [min(shares.values()) for point in POINTS if (shares := row.kept(point))]
        kept = " / ".join(percent(round(share, 2)) for share in lowest)
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
    if any(row.curve("half") for row in comparison.rows):
        caption = (
            f"{escape(comparison.title)}: {comparison.measure} on the test images over the fraction of the "
            "marks. Solid: ours, with the range over seeds" + ("; dashed: the paper." if paper else ".")
        )
        parts.append(Picture(f"{comparison.name}-curves.svg", caption, partial(draw_curves, comparison)))
    parts += [_scores(comparison), _LEGEND]
    if paper and comparison.subject.dataset in REPLACEMENTS:
        theirs = SETS[comparison.subject.dataset]
        parts.append(
            f"*The paper's numbers are of {theirs}, which {escape(comparison.subject.title)} replaces.*"
        )
    return parts


def _scores(comparison: Comparison) -> str:
    """Return all scores of a comparison as a table, with the area under each curve."""
    rows: list[list[str]] = []
    for row in comparison.rows:
        title = escape(row.method.title)
        for point in POINTS:
            curve = row.curve(point)
            cells = []
            for fraction in comparison.fractions:
                scores = [c[fraction].mean for r in comparison.rows if fraction in (c := r.curve(point))]
                own = curve.get(fraction)
                cells.append(_bold(own, max(scores)) if own is not None else _absent(row, fraction))
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
    assert experiment.paper_table is not None
    recall = experiment.paper_table == "exclusive_recall"
    paper = paper_table(experiment.paper_table)
    grouped: dict[str, list[Result]] = {}
    for result in results.of(experiment):
        grouped.setdefault(result.run.method.name, []).append(result)
    first = experiment.runs[0]
    rows = [make_row(first.subject, first.task, runs) for runs in grouped.values()]
    header = ["exclusive recall" if recall else MEASURES[first.task]]
    columns: list[list[str]] = [[escape(row.method.title) for row in rows]]
    for fraction in sorted({fraction for row in rows for fraction in row.planned}):
        for point in POINTS:
            values = [_spread(row, fraction, point, recall=recall) for row in rows]
            best = max((value.mean for value in values if value is not None), default=0.0)
            header.append(f"{percent(fraction)}, {_POINT_TITLES[point]}")
            columns.append(
                [
                    _absent(row, fraction) if value is None else _bold(value, best)
                    for row, value in zip(rows, values, strict=True)
                ]
            )
    for fraction in sorted({fraction for values in paper.values() for fraction in values}):
        theirs = [None if row.method.paper is None else paper[row.method.paper][fraction] for row in rows]
        best = max((value for value in theirs if value is not None), default=0.0)
        header.append("the paper" if recall else f"{percent(fraction)}, the paper")
        columns.append(["" if value is None else _bold(Spread.of([value]), best) for value in theirs])
    cells = [list(row) for row in zip(*columns, strict=True)]
    return [f"## {escape(experiment.title)}", escape(experiment.about), table(header, cells)]


def _spread(row: Row, fraction: float, point: Point, *, recall: bool) -> Spread | None:
    if not recall:
        return row.curve(point).get(fraction)
    values = [v for r in row.results.get(fraction, ()) if (v := r.exclusive_recall(point)) is not None]
    return Spread.of(values) if values else None


def _absent(row: Row, fraction: float) -> str:
    return MISSING[row.state(fraction)]


def _bold(spread: Spread, best: float) -> str:
    return f"**{spread}**" if spread.mean == best > 0 else str(spread)
