"""Sections of the report: scores, the paper's tables, exclusion, estimates, examples, and the runs."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from sparseshot.datasets import dataset_info
from sparseshot.experiments.experiment import Experiment
from sparseshot.experiments.paper import REPLACED, paper_source
from sparseshot.experiments.report.comparisons import FEW, Comparison, compare_table, percent
from sparseshot.experiments.report.figures import draw_confusions, draw_curves, draw_exclusion, draw_panels
from sparseshot.experiments.results import IMAGES, POINTS, Point, Result, Results
from sparseshot.pages import Parts, Picture, code, escape, table
from sparseshot.terminal import duration
from sparseshot.training.logs import numbers_of

_POINT_TITLES: Mapping[Point, str] = {"half": "0.5", "calibrated": "calibrated"}
_LEGEND = (
    "*Mean ± standard error over seeds. Bold: higher than all others by more than the standard error of the "
    "difference. –: not run yet; blank: not planned.*"
)
_KINDS_LEGEND = (
    "*Test images, at the threshold of each run, the mean over its seeds. A cell is right if its place and "
    "its kind are. In parentheses the 95\xa0% bootstrap interval over images; precision\xa0/\xa0recall. "
    "Any cell: F1 of places, whatever the kind.*"
)
_FREE_LICENCES = ("CC BY 4", "CC BY-SA", "CC0", "BSD", "MIT", "Apache", "GPL", "public domain")
_SHOWN_METHODS = 3


def summary_section(results: Results, comparisons: Sequence[Comparison]) -> Parts:
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
    return parts + _headline(comparisons)


def _headline(comparisons: Sequence[Comparison]) -> Parts:
    """Return the scores with few marks and with all, and how much of the latter is kept with few."""
    chosen = [(comparison, row) for comparison in comparisons for row in comparison.rows]
    columns = [f for f in (*FEW, 1.0) if any(f in row.curves["half"] for _, row in chosen)]
    chosen = [(comparison, row) for comparison, row in chosen if set(columns) & row.curves["half"].keys()]
    if len(columns) < 2:
        return []
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
    if len(comparison.fractions) > 1 and any(row.curves["half"] for row in comparison.rows):
        caption = (
            f"{escape(comparison.title)}: {comparison.measure} on the test images over the fraction of the "
            "marks. Solid: ours, with the standard error over seeds"
            + ("; dashed: the paper." if paper else ".")
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
    """Return all scores of a comparison as a table."""
    rows: list[list[str]] = []
    for row in comparison.rows:
        title = escape(row.method.title)
        for point, threshold in _POINT_TITLES.items():
            cells = [comparison.show(row, fraction, point) for fraction in comparison.fractions]
            rows.append([title, threshold, *cells])
            title = ""
        if row.paper:
            cells = [f"{row.paper[f]:.2f}" if f in row.paper else "" for f in comparison.fractions]
            rows.append(["", "the paper", *cells])
    header = [comparison.measure, "threshold", *map(percent, comparison.fractions)]
    return table(header, rows, text_columns=2)


def paper_table_section(experiment: Experiment, results: Results) -> Parts:
    """Return an experiment that reproduces a table of the paper, with the paper's numbers beside ours."""
    comparison = compare_table(experiment, results)
    recall = experiment.paper_table == "exclusive_recall"
    header = ["exclusive recall" if recall else comparison.measure]
    columns = [[escape(row.method.title) for row in comparison.rows]]
    for fraction in comparison.fractions:
        for point, title in _POINT_TITLES.items():
            header.append(f"{percent(fraction)}, {title}")
            columns.append([comparison.show(row, fraction, point) for row in comparison.rows])
    for fraction in sorted({fraction for row in comparison.rows for fraction in row.paper}):
        header.append("the paper" if recall else f"{percent(fraction)}, the paper")
        columns.append([f"{row.paper[fraction]:.2f}" if row.paper else "" for row in comparison.rows])
    cells = [list(row) for row in zip(*columns, strict=True)]
    return [f"## {escape(experiment.title)}", escape(experiment.about), table(header, cells)]


def kinds_section(results: Results) -> Parts:
    """Return the scores of the runs that tell kinds apart; nothing if there are none."""
    groups: dict[tuple[str, tuple[str, ...]], dict[tuple[str, float], list[Result]]] = {}
    for result in results.results.values():
        if result.kinds is not None:
            place = result.run.subject.title, tuple(result.kinds["kinds"])
            own = groups.setdefault(place, {})
            own.setdefault((result.run.method.title, result.run.fraction), []).append(result)
    parts: Parts = []
    for number, ((title, kinds), own) in enumerate(groups.items()):
        header = ["method", "marks", "seeds", *map(escape, kinds), "mean", "any cell"]
        rows = [
            [escape(method), percent(fraction), str(len(runs)), *_of_kinds(runs)]
            for (method, fraction), runs in own.items()
        ]
        last = {method: runs for (method, _), runs in sorted(own.items(), key=lambda pair: pair[0][1])}
        caption = "Found as (columns) what is (rows), as a share of the row; the runs with most marks."
        picture = Picture(f"kinds-{number}.svg", caption, partial(draw_confusions, kinds, last))
        parts += [f"### {escape(title)}", table(header, rows), picture]
    return ["## Kinds", *parts, _KINDS_LEGEND] if parts else []


def _of_kinds(runs: Sequence[Result]) -> list[str]:
    """Return F1 of each kind, their mean, and F1 of any cell."""
    columns = ("f1", "intervals", "precision", "recall", "mean_f1", "mean_interval")
    f1, intervals, precision, recall, mean, interval = (
        np.array([run.kinds[name] for run in runs if run.kinds], float).mean(axis=0) for name in columns
    )
    any_cell = [score for run in runs if (score := run.score("calibrated") or run.score("half")) is not None]
    return [
        *(
            f"{f:.3f}{_interval(*i)}, {p:.2f}\xa0/\xa0{r:.2f}"
            for f, i, p, r in zip(f1, intervals, precision, recall, strict=True)
        ),
        f"{mean:.3f}{_interval(*interval)}",
        f"{np.mean(any_cell):.3f}",
    ]


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"\xa0({low:.2f}–{high:.2f})"


def exclusion_section(comparisons: Sequence[Comparison]) -> Parts:
    """Return the section on the locations excluded during training."""
    figures = []
    for comparison in comparisons:
        for row in comparison.rows:
            logs = {fraction: runs[0].log for fraction, runs in row.results.items()}
            if any(any(numbers_of(log, "excluded")) for log in logs.values()):
                figures.append(
                    Picture(
                        f"{comparison.name}-{row.method.name}-exclusion.svg",
                        f"{escape(comparison.title)}, {escape(row.method.title)}: excluded during training.",
                        partial(draw_exclusion, logs),
                    )
                )
    if not figures:
        return []
    return [
        "## Exclusion",
        "Share of the unannotated locations that the loss excluded. Precision is the share of the excluded "
        "locations that are cells, recall the share of the unmarked cells that are excluded. With all marks "
        "there are no unmarked cells.",
        *figures,
    ]


def panel_section(comparisons: Sequence[Comparison], *, restricted: bool) -> Parts:
    """Return the section of example images at about 30 % of the marks, where licences permit it."""
    parts: Parts = []
    withheld = []
    for comparison in comparisons:
        info = comparison.subject.info
        if not (restricted or may_be_shown(info.licence)):
            withheld.append(escape(f"{comparison.subject.title} ({info.licence})"))
            continue
        done = [
            result
            for row in comparison.rows
            for results in row.results.values()
            for result in results
            if result.state == "done" and result.panel(IMAGES[0], "image") is not None
        ]
        if not done:
            continue
        nearest = min({result.run.fraction for result in done}, key=lambda fraction: abs(fraction - 0.3))
        first = {r.run.method.name: r for r in reversed(done) if r.run.fraction == nearest}
        shown = list(reversed(first.values()))[:_SHOWN_METHODS]
        caption = (
            f"{escape(comparison.title)}, {percent(nearest)} of the marks: a training image above, a test "
            f"image below. Green: true positive, red: false positive, blue: missed. "
            f"Images: {escape('; '.join(filter(None, (f'{info.title}, {info.licence}', info.citation))))}."
        )
        parts.append(Picture(f"{comparison.name}-panels.jpg", caption, partial(draw_panels, shown)))
    if withheld:
        names = ", ".join(dict.fromkeys(withheld))
        parts.append(f"Not shown because of their licences: {names}.")
    return ["## Examples", *parts] if parts else []


def may_be_shown(licence: str) -> bool:
    """Return whether a licence lets everybody redistribute images in a report.

    >>> may_be_shown("CC BY 4.0"), may_be_shown("BSD-3-Clause"), may_be_shown("CC BY-NC-SA 4.0")
    (True, True, False)
    """
    return licence.startswith(_FREE_LICENCES)


def provenance_section(results: Results) -> Parts:
    """Return the commands, the time they took and the machine, errors and warnings."""
    parts: Parts = ["## Runs"]
    for experiment in results.experiments:
        states = [result.state for result in results.of(experiment)]
        parts.append(f"{code(_command(experiment))}: {states.count('done')} of {len(states)} runs.")
    if done := results.in_state("done"):
        parts.append(_machines(done))
    if failed := results.in_state("failed"):
        rows = [[code(result.run.name), escape(result.failure)] for result in failed]
        parts += ["### Failed runs", table(["run", "error"], rows, text_columns=2)]
    if missing := results.in_state("missing"):
        parts += ["### Missing runs", ", ".join(code(result.run.name) for result in missing)]
    rows = [
        [code(result.run.name), escape(text)]
        for result in done
        if result.metrics
        for text in result.metrics["warnings"]
    ]
    if rows:
        parts += ["### Warnings", table(["run", "warning"], rows, text_columns=2)]
    return [*parts, f"*The paper's numbers: {escape(paper_source())}*"]


def _command(experiment: Experiment) -> str:
    """Return a command that runs the experiment."""
    words = ["sparseshot", "experiment", experiment.file or experiment.name]
    words += ["--profile", experiment.runs[0].profile]
    if any(run.subject.own is None for run in experiment.runs):
        words += ["--root", "DATA"]
    return shlex.join([*words, "--out", "DIR"])


def _machines(done: Sequence[Result]) -> str:
    metrics = [result.metrics for result in done if result.metrics]
    machines = set()
    for m in (each["machine"] for each in metrics):
        facts = [f"{m['cores']} cores", f"{m['threads']} threads per run"]
        facts += [f"{name} {m[name][:10]}" for name in ("precision", "commit") if m.get(name)]
        machines.add(f"{m['gpu'] or m['processor']} ({', '.join(facts)})")
    versions = {", ".join(f"{name} {v}" for name, v in each["versions"].items()) for each in metrics}
    return (
        f"{duration(sum(result.seconds for result in done))} of computing on "
        f"{escape('; '.join(sorted(machines)))}. Versions: {escape('; '.join(sorted(versions)))}."
    )
