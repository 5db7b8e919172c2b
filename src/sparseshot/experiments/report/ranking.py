"""The section that ranks methods over data sets."""

from collections.abc import Sequence

from sparseshot.experiments.report.comparisons import TASK_WORDS, Comparison
from sparseshot.experiments.report.statistics import FEWEST_PAIRS, PairedTest, mean_ranks, paired_tests
from sparseshot.experiments.results import POINTS, Point
from sparseshot.pages import Parts, code, escape, table


def ranking(comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
    """Rank the methods over data sets and fractions, and test the first against each of the others."""
    parts: Parts = []
    for task, word in TASK_WORDS.items():
        chosen = [comparison for comparison in comparisons if comparison.task == task]
        titles = {row.method.name: escape(row.method.title) for c in chosen for row in c.rows}
        for point, threshold in POINTS.items():
            scores = _scores_by_place(chosen, point)
            everywhere = [
                name for name in scores if all(c.row(name) is not None for c in chosen) and scores[name]
            ]
            ranks, places = mean_ranks({name: scores[name] for name in everywhere})
            if places < 2 or len(ranks) < 2:
                continue
            tests = paired_tests(focus[0], scores) if scores.get(focus[0]) else []
            by_other = {test.other: test for test in tests}
            rows = []
            for name in [*sorted(ranks, key=ranks.__getitem__), *(n for n in by_other if n not in ranks)]:
                rank = f"{ranks[name]:.2f}" if name in ranks else ""
                rows.append([titles[name], rank, *_test_cells(by_other.get(name))])
            better = f"{code(focus[0])} better in"
            header = ["method", "mean rank", "pairs", better, "median difference", "p (Holm)"]
            parts.append(f"### {word.capitalize()}, {threshold}")
            parts.append(table(header, rows))
            parts.append(f"*Ranked over the {places} pairs that all ranked methods have.*")
    if not parts:
        return []
    intro = (
        "Mean rank over pairs of data set and fraction; 1 is best, ties share a rank. "
        f"{code(focus[0])} is tested against each other method by Wilcoxon's signed-rank test, two-sided, "
        f"corrected by Holm within a table. With fewer than {FEWEST_PAIRS} differing pairs there is no test. "
        "The fractions of one data set share their test images and are nested, so the pairs are not "
        "independent and p is too small."
    )
    return ["## Ranking", intro, *parts]


def _scores_by_place(chosen: Sequence[Comparison], point: Point) -> dict[str, dict[tuple[str, float], float]]:
    scores: dict[str, dict[tuple[str, float], float]] = {}
    for comparison in chosen:
        for row in comparison.rows:
            own = scores.setdefault(row.method.name, {})
            own |= {(comparison.name, f): spread.mean for f, spread in row.curve(point).items()}
    return scores


def _test_cells(test: PairedTest | None) -> list[str]:
    if test is None:
        return [""] * 4
    p = "too few pairs" if test.p is None else f"{test.p:.2g}"
    return [str(test.pairs), str(test.wins), f"{test.median:+.3f}", p]
