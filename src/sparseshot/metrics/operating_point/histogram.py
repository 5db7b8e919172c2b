"""Histograms of scores, which add up over tiles and machines."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseshot.errors import InputError

HIGHEST_LOGIT = 16.0
BINS_PER_LOGIT = 64
BINS = int(2 * HIGHEST_LOGIT) * BINS_PER_LOGIT

THRESHOLDS: NDArray[np.float64] = 1 / (1 + np.exp(HIGHEST_LOGIT - np.arange(BINS) / BINS_PER_LOGIT))
"""Lowest score of each bin. Bin 0 also holds everything below, down to a score of 0."""
THRESHOLDS.flags.writeable = False


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Numbers of scores in [0, 1] in each of 2048 bins.

    The bins are equally wide in the logit, from -16 to 16, because a model trained on one cell in a thousand
    gives its cells scores of 0.001, which bins of equal width would not separate.

    >>> one, other = ScoreHistogram.of([0.1, 0.9]), ScoreHistogram.of([0.5])
    >>> (one + other).total, (one + other).at_least()[THRESHOLDS.searchsorted(0.5)]
    (3, np.int64(2))
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    @classmethod
    def of(cls, scores: ArrayLike) -> Self:
        """Count probabilities."""
        scores = np.asarray(scores)
        if scores.size and not (scores.min() >= 0 and scores.max() <= 1):
            raise InputError(
                f"scores run from {scores.min():g} to {scores.max():g}; give probabilities between 0 and 1, "
                "or logits to ScoreHistogram.of_logits"
            )
        with np.errstate(divide="ignore"):
            return cls.of_logits(np.log(scores) - np.log1p(-scores))

    @classmethod
    def of_logits(cls, logits: ArrayLike) -> Self:
        """Count probabilities given as logits; minus infinity is a score of 0."""
        logits = np.asarray(logits).reshape(-1)
        if np.isnan(logits).any():
            raise InputError(f"logit {int(np.argmax(np.isnan(logits)))} is nan; find out where it comes from")
        place = (np.clip(logits, -HIGHEST_LOGIT, HIGHEST_LOGIT) + HIGHEST_LOGIT) * BINS_PER_LOGIT
        return cls(np.bincount(np.minimum(place.astype(np.intp), BINS - 1), minlength=BINS))

    def __add__(self, other: "ScoreHistogram") -> "ScoreHistogram":
        return ScoreHistogram(self.counts + other.counts)

    @property
    def total(self) -> int:
        """Number of scores."""
        return int(self.counts.sum())

    def at_least(self) -> NDArray[np.int64]:
        """Return the number of scores that reach each of :data:`THRESHOLDS`."""
        return np.cumsum(self.counts[::-1])[::-1]
