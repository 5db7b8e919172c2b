"""The report on an output folder: one HTML page, one Markdown file, the figures, the raw metrics."""

import os
from collections.abc import Sequence
from pathlib import Path

from sparseshot.experiments.report.comparisons import choose_focus, compare
from sparseshot.experiments.report.evidence import exclusion_section, marked_share_section, panel_section
from sparseshot.experiments.report.provenance import provenance_section
from sparseshot.experiments.report.ranking import ranking_section
from sparseshot.experiments.report.raw import raw_metrics, write_raw_metrics
from sparseshot.experiments.report.scores import comparison_section, paper_table_section, summary_section
from sparseshot.experiments.results import Results
from sparseshot.files import make_folder, replacing
from sparseshot.pages import Part, Parts, pictures_of, to_markdown, write_page

__all__ = ["make_report", "raw_metrics", "write_raw_metrics", "write_report"]


def make_report(
    results: Results,
    *,
    about: str | None = None,
    against: Sequence[str] = (),
    restricted_images: bool = False,
) -> Parts:
    """Return the report as Markdown and pictures; the same runs make the same report.

    Args:
        results: the runs.
        about: short name of the method the report is about; None for exclusive cross-entropy, if it ran.
        against: methods it is compared with first; empty for adaptive and cross-entropy, if they ran.
        restricted_images: also show images whose licence restricts redistribution.
    """
    comparisons = compare(results)
    focus = choose_focus(comparisons, about, against)
    parts = summary_section(results, comparisons, focus)
    for comparison in comparisons:
        parts += comparison_section(comparison)
    for experiment in results.experiments:
        if experiment.paper_table is not None:
            parts += paper_table_section(experiment, results)
    parts += ranking_section(comparisons, focus)
    parts += exclusion_section(comparisons)
    parts += marked_share_section(comparisons)
    parts += panel_section(comparisons, focus, restricted=restricted_images)
    return parts + provenance_section(results)


def write_report(parts: Sequence[Part], page: Path, *, figures: Path | None = None) -> list[Path]:
    """Write the page, a Markdown file of the same name beside it and, if asked, the figures as files.

    Without ``figures`` the Markdown has text and tables only.
    """
    make_folder(page.parent)
    write_page(parts, page)
    folder = None if figures is None else Path(os.path.relpath(figures, page.parent)).as_posix()
    contents = {page.with_suffix(".md"): to_markdown(parts, pictures=folder).encode()}
    if figures is not None:
        make_folder(figures)
        contents |= {figures / file: picture.content for file, picture in pictures_of(parts).items()}
    for path, content in contents.items():
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return [page, *contents]
