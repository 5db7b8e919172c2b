"""Areas, ranks and paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

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


@dataclass(frozen=True)
class PairedTest:
    """One method against another over the places both have.

    Attributes:
        other: the other method.
        pairs: number of places.
        wins: number of places where the first method is better.
        median: of the differences, first minus other.
        p: of the two-sided Wilcoxon signed-rank test, corrected by Holm; None with too few pairs.
    """

    other: str
    pairs: int
    wins: int
    median: float
    p: float | None


def paired_tests(first: str, scores: Mapping[str, Mapping[Place, float]]) -> list[PairedTest]:
    """Test one method against each of the others."""
    rows: list[tuple[str, NDArray[np.float64], float | None]] = []
    for other, theirs in scores.items():
        shared = [place for place in scores[first] if place in theirs]
        if other == first or not shared:
            continue
        differences = np.array([scores[first][place] - theirs[place] for place in shared])
        rows.append((other, differences, _signed_rank(differences)))
    corrected = iter(holm([p for _, _, p in rows if p is not None]))
    return [
        PairedTest(
            other,
            len(differences),
            int((differences > 0).sum()),
            float(np.median(differences)),
            None if p is None else next(corrected),
        )
        for other, differences, p in rows
    ]


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


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, values[index] * (len(values) - rank)))
        corrected[index] = highest
    return corrected
