"""Precision, recall and F1 at every threshold at once."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.buckets import checked_points, checked_radius, checked_scores
from sparseshot.errors import InputError
from sparseshot.metrics.assignment import Candidates
from sparseshot.metrics.counts import Counts, f1_score
from sparseshot.metrics.histograms import THRESHOLDS, ScoreHistogram


@dataclass(frozen=True, eq=False)
class ScoredHits:
    """What was found, each with its score and whether it is a gain; adds up over images and machines.

    Attributes:
        score: ``(N,)``.
        hit: ``(N,)`` whether finding it makes one true cell more found, see :func:`gains_by_score`.
        truth_total: number of true cells.

    >>> truth, found = np.array([[0.0, 0.0], [50.0, 0.0]]), np.array([[1.0, 0.0], [20.0, 0.0]])
    >>> image = scored_hits(truth, found, np.array([0.9, 0.4]), radius=3)
    >>> (image + image).counts(0.5), (image + image).counts(0.3)
    (Counts(tp=2, fp=0, fn=2), Counts(tp=2, fp=2, fn=2))
    >>> (image + image).curve().average_precision
    0.5
    """

    score: NDArray[np.float64]
    hit: NDArray[np.bool_]
    truth_total: int

    def __add__(self, other: "ScoredHits") -> "ScoredHits":
        return ScoredHits(
            np.concatenate((self.score, other.score)),
            np.concatenate((self.hit, other.hit)),
            self.truth_total + other.truth_total,
        )

    def counts(self, threshold: float) -> Counts:
        """Count what is found at a score of ``threshold`` and above."""
        found = self.score >= threshold
        tp = int(np.count_nonzero(self.hit & found))
        return Counts(tp=tp, fp=int(np.count_nonzero(found)) - tp, fn=self.truth_total - tp)

    def curve(self) -> "PrecisionRecall":
        """Return the curve over every score that occurs."""
        order = np.argsort(-self.score, kind="stable")
        score = self.score[order]
        last = np.flatnonzero(np.append(score[1:] < score[:-1], len(score) > 0))
        tp = np.cumsum(self.hit[order], dtype=np.int64)
        return PrecisionRecall(score[last], tp[last], last + 1, self.truth_total)


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision, recall and F1 over thresholds.

    Attributes:
        threshold: ``(K,)`` descending.
        tp: ``(K,)`` true positives at each threshold.
        found: ``(K,)`` everything found at each, at least 1.
        truth_total: what there was to find.
    """

    threshold: NDArray[np.float64]
    tp: NDArray[np.int64]
    found: NDArray[np.int64]
    truth_total: int

    @classmethod
    def of_histograms(cls, inside: ScoreHistogram, everywhere: ScoreHistogram) -> Self:
        """Return the curve of pixels: the scores of those inside true cells, and of all."""
        tp, found = inside.at_least()[::-1], everywhere.at_least()[::-1]
        if (tp > found).any():
            raise InputError("more scores inside true cells than everywhere; give all pixels as the second")
        some = found > 0
        return cls(THRESHOLDS[::-1][some], tp[some], found[some], inside.total)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Of what was found, the share that is right."""
        return self.tp / self.found

    @property
    def recall(self) -> NDArray[np.float64]:
        """Of what is there, the share that was found; nan where nothing is there."""
        return self.tp / self.truth_total if self.truth_total else np.full(len(self.tp), np.nan)

    @property
    def f1(self) -> NDArray[np.float64]:
        """F1 of cells, Dice of pixels."""
        return f1_score(self.tp, self.found - self.tp, self.truth_total - self.tp)

    @property
    def average_precision(self) -> float:
        """The area under precision over recall as steps, Σ (Rₖ − Rₖ₋₁)·Pₖ; nan where nothing is there.

        Precision is taken as it is, not raised to the best precision at any greater recall.
        """
        if not self.truth_total:
            return float("nan")
        return float(np.sum(np.diff(self.recall, prepend=0.0) * self.precision))

    def best(self) -> tuple[float, float]:
        """Return threshold with the highest F1, and that F1; a bound, since only the truth can tell it."""
        if not len(self.threshold):
            return 0.5, float(f1_score(0, 0, self.truth_total))
        place = int(np.argmax(self.f1))
        return float(self.threshold[place]), float(self.f1[place])


def gains_by_score(
    truth_xy: NDArray[np.float64],
    found_xy: NDArray[np.float64],
    score: NDArray[np.floating],
    *,
    radius: float,
) -> NDArray[np.bool_]:
    """Tell which found points make one more true point found, taken from the highest score down.

    Adding one point to those of higher score raises the size of the greatest matching by one or by nothing.
    So for *every* threshold, the gains at or above it number exactly the pairs that
    :func:`~sparseshot.metrics.matching.match_points` makes at that threshold, from one pass. Giving each
    point the nearest true one still free, as is often done, can leave a neighbour without one, and then
    counts fewer.

    >>> truth, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    >>> gains_by_score(truth, found, np.array([0.9, 0.8, 0.7]), radius=2.5)
    array([ True,  True, False])
    """
    truth_xy, found_xy = checked_points(truth_xy, "truth_xy"), checked_points(found_xy, "found_xy")
    surety = checked_scores(score, points=len(found_xy))
    return gains_from(Candidates.within(found_xy, truth_xy, radius=checked_radius(radius)), surety)


def gains_from(candidates: Candidates, score: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell the same of candidates whose rows are what was found."""
    order = np.argsort(-score, kind="stable")
    gains = np.zeros(len(score), np.bool_)
    gains[order] = candidates.gains(order)
    return gains


def scored_hits(
    truth_xy: NDArray[np.float64],
    found_xy: NDArray[np.float64],
    score: NDArray[np.floating],
    *,
    radius: float,
) -> ScoredHits:
    """Return the scored hits of one image, within a radius in the unit of the points."""
    hits = gains_by_score(truth_xy, found_xy, score, radius=radius)
    return ScoredHits(np.asarray(score, dtype=np.float64), hits, len(np.asarray(truth_xy)))
