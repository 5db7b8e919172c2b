"""The section that ranks methods over data sets: areas, ranks and paired tests."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from sparseshot.experiments.report.comparisons import TASK_WORDS, Comparison
from sparseshot.experiments.results import POINTS, Point
from sparseshot.pages import Parts, code, escape, table

Place = TypeVar("Place")
"""Where methods are compared, e.g. a data set and a fraction."""

FEWEST_PAIRS = 6
"""With fewer pairs no signed-rank test can reach p < 0.05."""


def area(curve: Mapping[float, float], fractions: Sequence[float]) -> float | None:
    """Return the area under a curve over these fractions, as its mean height; None with fewer than two.

    >>> area({0.1: 0.0, 0.3: 1.0, 1.0: 1.0}, [0.1, 0.3])
    0.5
    """
    if len(fractions) < 2:
        return None
    values = [curve[fraction] for fraction in fractions]
    return float(np.trapezoid(values, fractions) / (fractions[-1] - fractions[0]))


def mean_ranks(scores: Mapping[str, Mapping[Place, float]]) -> tuple[dict[str, float], int]:
    """Return the mean rank of each method over the places that all have, 1 the best, and their number.

    >>> mean_ranks({"a": {1: 0.9, 2: 0.8}, "b": {1: 0.7, 2: 0.8, 3: 0.1}})
    ({'a': 1.25, 'b': 1.75}, 2)
    """
    every = list(scores.values())
    places = [place for place in (every[0] if every else ()) if all(place in own for own in every)]
    if not places:
        return {}, 0
    table = np.array([[own[place] for place in places] for own in every])
    ranks = stats.rankdata(-table, axis=0).mean(axis=1)
    return dict(zip(scores, map(float, ranks), strict=True)), len(places)


class PairedTest(NamedTuple):
    """One method against another over the places both have: first minus other."""

    pairs: int
    wins: int
    median: float
    p: float | None
    """Of the two-sided Wilcoxon signed-rank test, corrected by Holm; None with too few pairs."""


def paired_tests(first: str, scores: Mapping[str, Mapping[Place, float]]) -> dict[str, PairedTest]:
    """Test one method against each of the others."""
    differences: dict[str, NDArray[np.float64]] = {}
    for other, theirs in scores.items():
        shared = [place for place in scores[first] if place in theirs]
        if other != first and shared:
            differences[other] = np.array([scores[first][place] - theirs[place] for place in shared])
    p_values = {other: p for other, own in differences.items() if (p := _signed_rank(own)) is not None}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {
        other: PairedTest(len(own), int((own > 0).sum()), float(np.median(own)), corrected.get(other))
        for other, own in differences.items()
    }


def _signed_rank(differences: NDArray[np.float64]) -> float | None:
    # Values equal to eight digits are equal: a difference of rounding has no sign to rank.
    differences = np.round(differences, 8)
    differences = differences[differences != 0]
    if len(differences) < FEWEST_PAIRS:
        return None
    tied = len(np.unique(np.abs(differences))) < len(differences)
    # By default scipy resamples where there are ties, which takes seconds.
    method = "asymptotic" if tied or len(differences) > 50 else "exact"
    return float(stats.wilcoxon(differences, method=method).pvalue)


def holm(values: ArrayLike) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(values, np.float64)
    order = np.argsort(p)
    raised = np.minimum(p[order] * np.arange(len(p), 0, -1), 1)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(raised)
    return list(map(float, corrected))


def ranking_section(comparisons: Sequence[Comparison], focus: Sequence[str]) -> Parts:
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
            tests = paired_tests(focus[0], scores) if scores.get(focus[0]) else {}
            rows = []
            for name in [*sorted(ranks, key=ranks.__getitem__), *(n for n in tests if n not in ranks)]:
                rank = f"{ranks[name]:.2f}" if name in ranks else ""
                rows.append([titles[name], rank, *_test_cells(tests.get(name))])
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
            own |= {(comparison.name, f): spread.mean for f, spread in row.curves[point].items()}
    return scores


def _test_cells(test: PairedTest | None) -> list[str]:
    if test is None:
        return [""] * 4
    p = "too few pairs" if test.p is None else f"{test.p:.2g}"
    return [str(test.pairs), str(test.wins), f"{test.median:+.3f}", p]
