"""The parts of the report that show what happened: what was excluded, and what was found."""

from collections.abc import Sequence

from sparseshot.experiments.report.comparisons import Comparison, Focus
from sparseshot.experiments.report.document import Block, Heading, Paragraph
from sparseshot.experiments.report.figures import exclusion_figure, panels_figure, share_figure


def exclusion(comparisons: Sequence[Comparison]) -> list[Block]:
    """Show what was excluded while training."""
    figures = [
        figure
        for comparison in comparisons
        for row in comparison.rows
        if (figure := exclusion_figure(comparison, row)) is not None
    ]
    if not figures:
        return []
    intro = (
        "The share of unannotated locations left out of the loss, and, since the truth is known here, how "
        "many of them are cells (precision) and how many of the unmarked cells are left out (recall)."
    )
    return [Heading(2, "What was excluded"), Paragraph(intro), *figures]


def marked_share(comparisons: Sequence[Comparison]) -> list[Block]:
    """Show how much was marked beside what losses that estimate it have found."""
    figure = share_figure(comparisons)
    if figure is None:
        return []
    intro = (
        "Some losses find out by themselves which share of the cells was marked. The truth is that of the "
        "crops the model saw, which lie near marks more often than elsewhere."
    )
    return [Heading(2, "How much was marked"), Paragraph(intro), figure]


def pictures(comparisons: Sequence[Comparison], focus: Focus, *, restricted: bool) -> list[Block]:
    """Show what was found with 30 % of the marks, of data sets that may be shown."""
    blocks: list[Block] = []
    withheld = []
    for comparison in comparisons:
        subject = comparison.subject
        if not (restricted or may_be_shown(subject.licence)):
            withheld.append(f"{subject.title} ({subject.licence})")
            continue
        done = [
            result
            for name in reversed(focus.names)
            if (row := comparison.row(name)) is not None
            for results in row.results.values()
            for result in results
            if result.state == "done"
        ]
        if not done:
            continue
        nearest = min({result.run.fraction for result in done}, key=lambda fraction: abs(fraction - 0.3))
        same = {r.run.method.name: r for r in reversed(done) if r.run.fraction == nearest}
        figure = panels_figure(comparison, [same[name] for name in reversed(focus.names) if name in same])
        if figure is not None:
            blocks.append(figure)
            blocks.append(Paragraph(f"Images: {subject.credit}.", quiet=True))
    if withheld:
        names = ", ".join(dict.fromkeys(withheld))
        blocks.append(
            Paragraph(f"Not shown, because their licence does not let everybody pass them on: {names}.")
        )
    return [Heading(2, "What it looks like"), *blocks] if blocks else []


def may_be_shown(licence: str) -> bool:
    """Tell whether a licence lets images go into a report that anybody may pass on.

    >>> may_be_shown("CC BY 4.0"), may_be_shown("BSD-3-Clause"), may_be_shown("CC BY-NC-SA 4.0")
    (True, True, False)
    """
    free = ("CC BY 4", "CC BY-SA", "CC0", "BSD", "MIT", "Apache", "GPL", "public domain")
    return licence.startswith(free)
