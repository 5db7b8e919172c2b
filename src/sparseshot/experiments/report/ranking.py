"""The part of the report that ranks methods over data sets."""

from collections.abc import Sequence

from sparseshot.experiments.report.comparisons import TASK_WORDS, Comparison, Focus
from sparseshot.experiments.report.document import Block, Heading, Paragraph, Table
from sparseshot.experiments.report.statistics import FEWEST_PAIRS, PairedTest, mean_ranks, paired_tests
from sparseshot.experiments.results import POINTS, Point


def ranking(comparisons: Sequence[Comparison], focus: Focus) -> list[Block]:
    """Rank the methods over data sets and fractions, and test the first against each of the others."""
    blocks: list[Block] = []
    for task, word in TASK_WORDS.items():
        chosen = [comparison for comparison in comparisons if comparison.task == task]
        for point, where in POINTS.items():
            scores = _scores_by_place(chosen, point)
            everywhere = [
                name for name in scores if all(c.row(name) is not None for c in chosen) and scores[name]
            ]
            ranks, places = mean_ranks({name: scores[name] for name in everywhere})
            tests = paired_tests(focus.first, scores) if scores.get(focus.first) else []
            if places < 2 or len(ranks) < 2:
                continue
            titles = {row.method.name: row.method.title for c in chosen for row in c.rows}
            blocks.append(Heading(3, f"{word.capitalize()}, {where}"))
            by_other = {test.other: test for test in tests}
            rows = []
            for name in [*sorted(ranks, key=ranks.__getitem__), *(n for n in by_other if n not in ranks)]:
                test = by_other.get(name)
                rank = f"{ranks[name]:.2f}" if name in ranks else ""
                rows.append([titles[name], rank, *(_test_cells(test) if test else [""] * 4)])
            header = [
                "method",
                "mean rank",
                "pairs",
                f"{focus.first} better in",
                "median difference",
                "p (Holm)",
            ]
            blocks.append(Table(header, rows))
            blocks.append(
                Paragraph(
                    f"Ranked over the {places} pairs of data set and fraction that all ranked methods have.",
                    quiet=True,
                )
            )
    if not blocks:
        return []
    intro = (
        "Mean rank over the pairs of data set and fraction, 1 the best; ties share. The test is Wilcoxon's "
        f"signed-rank test of {focus.first} against each other method over the pairs both have, two-sided, "
        f"corrected by Holm within a table; with fewer than {FEWEST_PAIRS} pairs that differ it cannot tell "
        "anything and is left out. The fractions of one data set share their images and, being nested, their "
        "marks: the pairs are not independent, and p is too small rather than too large."
    )
    return [Heading(2, "Ranking"), Paragraph(intro), *blocks]


def _scores_by_place(chosen: Sequence[Comparison], point: Point) -> dict[str, dict[tuple[str, float], float]]:
    scores: dict[str, dict[tuple[str, float], float]] = {}
    for comparison in chosen:
        for row in comparison.rows:
            own = scores.setdefault(row.method.name, {})
            own |= {(comparison.name, f): spread.mean for f, spread in row.curve(point).items()}
    return scores


def _test_cells(test: PairedTest) -> list[str]:
    p = "too few pairs" if test.p is None else f"{test.p:.2g}"
    return [str(test.pairs), str(test.wins), f"{test.median:+.3f}", p]
