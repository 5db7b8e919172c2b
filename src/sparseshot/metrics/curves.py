"""Precision, recall and F1 at every threshold from one matching."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseshot.cells.buckets import checked_points, checked_radius, checked_scores
from sparseshot.metrics.counts import Counts, f1_score
from sparseshot.metrics.matching import Candidates


@dataclass(frozen=True, eq=False)
class ScoredHits:
    """Everything found in some images, each with its score and whether it is a hit; images add up.

    Pixels are scored in the same way as cells: each pixel is found with its probability, and is a hit inside
    a true cell.

    Attributes:
        score: ``(N,)`` floats.
        hit: ``(N,)`` booleans. For cells see :func:`scored_hits`.
        truth_total: number of true cells or pixels.

    >>> truth, found = np.array([[0.0, 0.0], [50.0, 0.0]]), np.array([[1.0, 0.0], [20.0, 0.0]])
    >>> image = scored_hits(truth, found, np.array([0.9, 0.4]), radius=3)
    >>> (image + image).counts_at([0.5, 0.3])
    array([[2, 0, 2],
           [2, 2, 2]])
    >>> (image + image).average_precision
    0.5
    """

    score: NDArray[np.floating]
    hit: NDArray[np.bool_]
    truth_total: int

    def __add__(self, other: "ScoredHits") -> "ScoredHits":
        return ScoredHits(
            np.concatenate((self.score, other.score)),
            np.concatenate((self.hit, other.hit)),
            self.truth_total + other.truth_total,
        )

    def counts_at(self, thresholds: ArrayLike) -> NDArray[np.int64]:
        """Return ``(K, 3)``: tp, fp and fn of what scores at least each of ``(K,)`` thresholds.

        Thresholds are first rounded to the precision of the scores, so that a score equals itself.
        """
        at = np.asarray(thresholds, self.score.dtype)
        tp, fp = (
            np.count_nonzero(kind) - np.searchsorted(np.sort(self.score[kind]), at)
            for kind in (self.hit, ~self.hit)
        )
        return np.stack([tp, fp, self.truth_total - tp], axis=-1)

    def counts(self, threshold: float) -> Counts:
        """Count what scores at least ``threshold``."""
        return Counts(*map(int, self.counts_at(threshold)))

    @property
    def thresholds(self) -> NDArray[np.floating]:
        """Every score that occurs, once, descending: the thresholds at which counts change."""
        return np.unique(self.score)[::-1]

    @property
    def average_precision(self) -> float:
        """Area under precision over recall as steps, Σ (Rₖ − Rₖ₋₁)·Pₖ; nan where there is no truth.

        Precision is not interpolated, that is, not raised to the best precision at any greater recall.
        """
        if not self.truth_total:
            return float("nan")
        tp, fp, _ = self.counts_at(self.thresholds).T
        return float(np.sum(np.diff(tp, prepend=0) / self.truth_total * (tp / (tp + fp))))

    def best(self) -> tuple[float, float]:
        """Return the threshold with the highest F1 and that F1: an upper bound, since it needs the truth."""
        if not len(self.score):
            return 0.5, float(f1_score(0, 0, self.truth_total))
        f1 = f1_score(*self.counts_at(self.thresholds).T)
        return float(self.thresholds[f1.argmax()]), float(f1.max())


def scored_hits(
    truth_xy: NDArray[np.float64],
    found_xy: NDArray[np.float64],
    score: NDArray[np.floating],
    *,
    radius: float,
) -> ScoredHits:
    """Return the scored hits of the points found in one image, within a radius in the unit of the points.

    From the highest score down, a found point is a hit if adding it makes the largest one-to-one matching
    larger. So at *every* threshold there are exactly as many hits as
    :func:`~sparseshot.metrics.matching.match_points` makes pairs there, from one pass. Pairing each point
    with the nearest free one in turn, as is often done, can count fewer.

    >>> truth, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    >>> scored_hits(truth, found, np.array([0.9, 0.8, 0.7]), radius=2.5).hit
    array([ True,  True, False])
    """
    truth_xy, found_xy = checked_points(truth_xy, "truth_xy"), checked_points(found_xy, "found_xy")
    descending = np.argsort(-checked_scores(score, points=len(found_xy)), kind="stable")
    hit = np.zeros(len(found_xy), np.bool_)
    hit[descending] = Candidates.within(found_xy, truth_xy, radius=checked_radius(radius)).gains(descending)
    return ScoredHits(np.asarray(score, np.result_type(score, np.float32)), hit, len(truth_xy))


def mark_scores(
    marks_xy: NDArray[np.float64],
    found_xy: NDArray[np.float64],
    score: NDArray[np.floating],
    *,
    radius: float,
) -> NDArray[np.float64]:
    """Return the highest score found within a radius of each mark; 0 where there is none.

    >>> mark_scores(np.array([[0.0, 0.0], [50.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 0.0]]),
    ...             np.array([0.3, 0.8]), radius=3)
    array([0.8, 0. ])
    """
    marks_xy, found_xy = checked_points(marks_xy, "marks_xy"), checked_points(found_xy, "found_xy")
    scores = checked_scores(score, points=len(found_xy))
    near = Candidates.within(marks_xy, found_xy, radius=checked_radius(radius))
    best = np.zeros(len(marks_xy))
    np.maximum.at(best, near.row, scores[near.column])
    return best
