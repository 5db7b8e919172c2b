"""The parts of the report that show scores: in short, by data set, and as the paper's tables."""

from collections.abc import Mapping, Sequence

from sparseshot.experiments.paper import SETS, paper_table
from sparseshot.experiments.plan import Experiment
from sparseshot.experiments.report import words
from sparseshot.experiments.report.comparisons import (
    MEASURES,
    Comparison,
    Focus,
    Row,
    Spread,
    make_row,
    paper_title,
    percent,
)
from sparseshot.experiments.report.document import Block, Bullets, Heading, Paragraph, Table
from sparseshot.experiments.report.figures import curves_figure
from sparseshot.experiments.report.statistics import area
from sparseshot.experiments.results import POINTS, Point, Result, Results

ABSENT = {"missing": "–", "failed": "failed", "done": "", "": ""}
"""What stands in a table for a run that has no score."""

_TABLE_REMARK = (
    "Bold: the best at this threshold. Area: the mean height of the curve, over those points that the paper "
    "and all methods planned alike have. –: not run yet."
)


def summary(results: Results, comparisons: Sequence[Comparison], focus: Focus) -> list[Block]:
    """Say what was asked, how much of it is there, and what comes out."""
    done, failed, missing = (
        [result for result in results.results.values() if result.state == state]
        for state in ("done", "failed", "missing")
    )
    title = results.experiments[0].title if len(results.experiments) == 1 else "Experiments"
    blocks: list[Block] = [Heading(1, title)]
    for experiment in results.experiments:
        name = f"**{experiment.title}.** " if len(results.experiments) > 1 else ""
        blocks.append(Paragraph(name + experiment.about))
    state = f"{len(done)} of {len(results.results)} runs are done"
    state += f", **{len(failed)} failed**" if failed else ""
    state += f", {len(missing)} are still missing and shown as –" if missing else ""
    blocks.append(Paragraph(f"{state}. {_how_to_read()}", quiet=True))
    if sentences := words.headline(comparisons, focus):
        blocks += [Heading(2, "In short"), Bullets(sentences)]
        blocks += _headline_table(comparisons, focus)
    return blocks


def _how_to_read() -> str:
    return (
        "Every score is given at threshold 0.5, as in the paper, and at the threshold calibrated from held-"
        "out marks alone; ± is half the range over seeds."
    )


def _headline_table(comparisons: Sequence[Comparison], focus: Focus) -> list[Block]:
    there = [row for comparison in comparisons for name in focus.names if (row := comparison.row(name))]
    columns = [f for f in (*words.FEW, 1.0) if any(f in row.curve("half") for row in there)]
    rows: list[list[str]] = []
    lines = set()
    for comparison in comparisons:
        label = comparison.title
        for name in focus.names:
            row = comparison.row(name)
            if row is None or not words.kept(row, "half"):
                continue
            if label:
                lines.add(len(rows))
            curves = [row.curve(point) for point in POINTS]
            scores = [" / ".join(str(curve[f]) for curve in curves if f in curve) for f in columns]
            lowest = (min(shares.values()) for point in POINTS if (shares := words.kept(row, point)))
            rows.append([label, row.method.title, *scores, " / ".join(map(words.whole_percent, lowest))])
            label = ""
    remark = (
        "At threshold 0.5 / calibrated. Kept: the lowest of 10 to 40\xa0% as a share of the same method's "
        "score with all marks."
    )
    header = ["", "method", *map(percent, columns), "kept"]
    return [Table(header, rows, words=2, lines=frozenset(lines)), Paragraph(remark, quiet=True)]


def curves(comparison: Comparison, focus: Focus) -> list[Block]:
    """Show one data set and task: figure, numbers, and what they say."""
    blocks: list[Block] = [Heading(2, comparison.title)]
    figure = curves_figure(comparison)
    if figure is not None:
        blocks.append(figure)
    blocks.append(_scores(comparison))
    blocks.append(Paragraph(_TABLE_REMARK, quiet=True))
    sentences = [*words.rivals(comparison, focus.first), *words.against_the_paper(comparison)]
    order = words.order_against_the_paper(comparison)
    blocks.append(Bullets(sentences + ([order] if order else [])))
    if any(row.paper for row in comparison.rows) and not SETS[comparison.subject.dataset].same:
        blocks.append(Paragraph(f"The paper's numbers are of {paper_title(comparison.subject)}.", quiet=True))
    return blocks


def _scores(comparison: Comparison) -> Table:
    """Return every number, with the area under each curve; the best at each fraction is bold."""
    rows: list[list[str]] = []
    lines, quiet = set(), set()
    best = {
        (point, fraction): max(
            (row.curve(point)[fraction].mean for row in comparison.rows if fraction in row.curve(point)),
            default=0.0,
        )
        for point in POINTS
        for fraction in comparison.fractions
    }
    for row in comparison.rows:
        lines.add(len(rows))
        for point in POINTS:
            curve = row.curve(point)
            cells = []
            for fraction in comparison.fractions:
                text = str(curve[fraction]) if fraction in curve else ABSENT[row.state(fraction)]
                top = fraction in curve and curve[fraction].mean == best[point, fraction] > 0
                cells.append(f"**{text}**" if top else text)
            means = {fraction: spread.mean for fraction, spread in curve.items()}
            title = row.method.title if point == "half" else ""
            rows.append([title, short(point), *cells, *_area(comparison, row, point, means)])
        if row.paper:
            quiet.add(len(rows))
            cells = [f"{row.paper[f]:.2f}" if f in row.paper else "" for f in comparison.fractions]
            rows.append(["", "the paper", *cells, *_area(comparison, row, "half", row.paper)])
    header = [comparison.measure, "threshold", *map(percent, comparison.fractions), "area", "points"]
    return Table(header, rows, words=2, lines=frozenset(lines), quiet=frozenset(quiet))


def _area(comparison: Comparison, row: Row, point: Point, means: Mapping[float, float]) -> tuple[str, str]:
    fractions = comparison.shared_fractions(row, point)
    value = area(means, fractions) if means else None
    return ("", "") if value is None else (f"{value:.3f}", str(len(fractions)))


def table_of_the_paper(experiment: Experiment, results: Results) -> list[Block]:
    """Show an experiment that stands for a table of the paper, ours beside it."""
    assert experiment.paper_table is not None
    recall = experiment.paper_table == "exclusive_recall"
    paper = paper_table(experiment.paper_table)
    grouped: dict[str, list[Result]] = {}
    for result in results.of(experiment):
        grouped.setdefault(result.run.method.name, []).append(result)
    first = experiment.runs[0]
    rows = [make_row(first.subject, first.task, runs) for runs in grouped.values()]
    ours = {
        (fraction, point): {
            row.method.title: spread
            for row in rows
            if (spread := _spread(row, fraction, point, recall=recall)) is not None
        }
        for fraction in sorted({fraction for row in rows for fraction in row.planned})
        for point in POINTS
    }
    theirs = {
        fraction: {
            row.method.title: Spread.of([paper[row.method.paper][fraction]])
            for row in rows
            if row.method.paper is not None
        }
        for fraction in sorted({fraction for values in paper.values() for fraction in values})
    }
    cells = [
        [
            row.method.title,
            *(_cell(row, column, ours[column]) for column in ours),
            *(_cell(row, None, column) for column in theirs.values()),
        ]
        for row in rows
    ]
    header = ["exclusive recall" if recall else MEASURES[first.task]]
    header += [f"{percent(fraction)}, {short(point)}" for fraction, point in ours]
    header += ["the paper" if recall else f"{percent(fraction)}, the paper" for fraction in theirs]
    sentences = [
        words.best_in_table(fraction, {point: ours[fraction, point] for point in POINTS}, theirs)
        for fraction in dict.fromkeys(fraction for fraction, _ in ours)
    ]
    return [
        Heading(2, experiment.title),
        Paragraph(experiment.about),
        Table(header, cells),
        Bullets([sentence for sentence in sentences if sentence]),
    ]


def _spread(row: Row, fraction: float, point: Point, *, recall: bool) -> Spread | None:
    if not recall:
        return row.curve(point).get(fraction)
    values = [v for r in row.results.get(fraction, ()) if (v := r.exclusive_recall(point)) is not None]
    return Spread.of(values) if values else None


def _cell(row: Row, column: tuple[float, Point] | None, values: Mapping[str, Spread]) -> str:
    """Return one cell of a table of the paper; the best of its column is bold."""
    own = values.get(row.method.title)
    if own is None:
        return ABSENT[row.state(column[0])] if column else ""
    best = own.mean == max(spread.mean for spread in values.values()) > 0
    return f"**{own}**" if best else str(own)


def short(point: Point) -> str:
    """Say an operating point in a table."""
    return "0.5" if point == "half" else point
