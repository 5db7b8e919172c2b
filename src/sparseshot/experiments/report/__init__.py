"""The report of an output folder: one HTML page, one Markdown file, the figures, the raw metrics."""

import os
from collections.abc import Sequence
from pathlib import Path

from sparseshot.experiments.folders import make_folder
from sparseshot.experiments.report.comparisons import choose_focus, compare
from sparseshot.experiments.report.document import Block, figures_of
from sparseshot.experiments.report.evidence import exclusion, marked_share, pictures
from sparseshot.experiments.report.html import to_html
from sparseshot.experiments.report.markdown import to_markdown
from sparseshot.experiments.report.provenance import runs
from sparseshot.experiments.report.ranking import ranking
from sparseshot.experiments.report.raw import raw_metrics, write_raw_metrics
from sparseshot.experiments.report.scores import curves, summary, table_of_the_paper
from sparseshot.experiments.results import Results
from sparseshot.files import replacing

__all__ = ["make_report", "raw_metrics", "write_raw_metrics", "write_report"]


def make_report(
    results: Results,
    *,
    about: str | None = None,
    against: Sequence[str] = (),
    restricted_images: bool = False,
) -> list[Block]:
    """Make the blocks of the report; the same runs make the same report.

    Args:
        results: what is there.
        about: short name of the method the report is about; None: exclusive cross-entropy, if it was run.
        against: methods it is held against first; none: adaptive and cross-entropy, if they were run.
        restricted_images: also show images whose licence does not let everybody pass them on.
    """
    comparisons = compare(results)
    focus = choose_focus(comparisons, about, against)
    blocks = summary(results, comparisons, focus)
    for comparison in comparisons:
        blocks += curves(comparison, focus)
    for experiment in results.experiments:
        if experiment.paper_table is not None:
            blocks += table_of_the_paper(experiment, results)
    blocks += ranking(comparisons, focus)
    blocks += exclusion(comparisons)
    blocks += marked_share(comparisons)
    blocks += pictures(comparisons, focus, restricted=restricted_images)
    return blocks + runs(results)


def write_report(blocks: Sequence[Block], page: Path, *, figures: Path | None = None) -> list[Path]:
    """Write the page, a Markdown file of the same name beside it and, if asked, the figures as files.

    Without ``figures`` the Markdown has words and tables alone.
    """
    make_folder(page.parent)
    written = [page, page.with_suffix(".md")]
    place = None
    if figures is not None:
        make_folder(figures)
        place = Path(os.path.relpath(figures, page.parent)).as_posix()
        for figure in figures_of(blocks):
            with replacing(figures / figure.file) as temporary:
                temporary.write_bytes(figure.content)
            written.append(figures / figure.file)
    title = getattr(blocks[0], "text", "Experiments")
    for path, text in zip(
        written[:2], (to_html(blocks, title=title), to_markdown(blocks, figures=place)), strict=True
    ):
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return written
