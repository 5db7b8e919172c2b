"""Sections on excluded locations, the estimated share of marks, and example images."""

from collections.abc import Sequence
from functools import partial

from sparseshot.experiments.panels import IMAGES, read_panel
from sparseshot.experiments.report.comparisons import Comparison, percent
from sparseshot.experiments.report.drawing import draw_exclusion, draw_panels, draw_shares
from sparseshot.pages import Parts, Picture, escape
from sparseshot.training.logs import numbers_of

_FREE_LICENCES = ("CC BY 4", "CC BY-SA", "CC0", "BSD", "MIT", "Apache", "GPL", "public domain")


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


def marked_share_section(comparisons: Sequence[Comparison]) -> Parts:
    """Return the section on estimates of the share of cells that is marked."""
    estimates = {}
    for comparison in comparisons:
        results = [r for row in comparison.rows for runs in row.results.values() for r in runs]
        found = [estimate for result in results if (estimate := result.marked_share()) is not None]
        if found:
            estimates[comparison.title] = found
    if not estimates:
        return []
    caption = "Share of the cells that is marked: estimate at the end of training over the true share."
    return [
        "## Share of marked cells",
        "Some losses estimate the share of the cells that is marked. The true share is that of the training "
        "crops, which lie near marks more often than elsewhere.",
        Picture("marked-share.svg", caption, partial(draw_shares, estimates)),
    ]


def panel_section(comparisons: Sequence[Comparison], focus: Sequence[str], *, restricted: bool) -> Parts:
    """Return the section of example images at about 30 % of the marks, where licences permit it."""
    parts: Parts = []
    withheld = []
    for comparison in comparisons:
        subject = comparison.subject
        if not (restricted or may_be_shown(subject.licence)):
            withheld.append(escape(f"{subject.title} ({subject.licence})"))
            continue
        done = [
            result
            for name in reversed(focus)
            if (row := comparison.row(name)) is not None
            for results in row.results.values()
            for result in results
            if result.state == "done" and read_panel(result.folder, IMAGES[0], "image") is not None
        ]
        if not done:
            continue
        nearest = min({result.run.fraction for result in done}, key=lambda fraction: abs(fraction - 0.3))
        chosen = {r.run.method.name: r for r in reversed(done) if r.run.fraction == nearest}
        shown = [chosen[name] for name in reversed(focus) if name in chosen]
        caption = (
            f"{escape(comparison.title)}, {percent(nearest)} of the marks: a training image above, a test "
            f"image below. Green: true positive, red: false positive, blue: missed. "
            f"Images: {escape(subject.credit)}."
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
