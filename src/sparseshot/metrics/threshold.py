"""Histograms of scores, which add up over tiles, and the threshold that held-out marks choose from them."""

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d

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


_LOGITS: NDArray[np.float64] = np.arange(BINS) / BINS_PER_LOGIT - HIGHEST_LOGIT
"""Lowest logit of each bin."""

DOUBT_IN_MARKS = 4.0
"""Predictions added to the predicted positives, in marks; see :func:`calibrate_threshold`."""

PRIOR_SPREAD, PRIOR_SPREAD_OF_AREAS = 0.5, 3.0
"""Standard deviation, in logits, of the best threshold about the one that a loss is built for. It is larger
where marks are areas: there confident pixels beside cells are excluded, and their scores stay high."""

ERROR_OF_ONE_MARK = 10.0
"""Standard error, in logits, of a threshold chosen from one mark, beside what resampling shows: marks of one
person on a few images are not drawn from all cells alike."""

LEAST_RECALL = 0.5
"""Share of the marks found at any score that a chosen threshold always finds."""

_RESAMPLES = 100
_NINETY = 1.645
"""Half the width of a 90 % interval, in standard deviations."""


@dataclass(frozen=True)
class Calibration:
    """A threshold with its scores on the held-out marks.

    Attributes:
        threshold: predict positive at this score and above.
        criterion: recall² / positive_share; the higher, the better the model on these images.
        recall: share of the held-out marks that reach the threshold.
        positive_share: share of the locations that reach it.
        criterion_error: standard error of the criterion, from the number of marks.
        low: lower end of the 90 % interval of the threshold.
        high: its upper end.
        marks: number of independent marks it rests on.
    """

    threshold: float
    criterion: float
    recall: float
    positive_share: float
    criterion_error: float = 0.0
    low: float = 0.0
    high: float = 1.0
    marks: int = 0


def calibrate_threshold(
    scores_of_marks: ArrayLike | ScoreHistogram,
    scores_of_all: ArrayLike | ScoreHistogram,
    *,
    marks: int | None = None,
    places: int | None = None,
    prior: float | None = None,
    spread: float | None = None,
) -> Calibration:
    r"""Choose the threshold that maximises recall² / P(predicted positive) (Lee & Liu, ICML 2003).

    The quotient equals precision · recall / P(positive), so it is high where F1 is high. But recall is known
    from positive marks alone, and P(predicted positive) without any. So it needs neither negatives nor
    exhaustive truth.

    With few marks it is unstable: at a threshold that one mark and three predictions reach by chance, recall²
    is small, but P is smaller still. So the threshold is chosen by a more stable form,

    .. math:: \hat r(q)^2 / (n(q) + 4 m)

    where :math:`\hat r` is recall smoothed over the logit of the score (Gaussian, of Silverman's width),
    n the number of predictions and m the number of predictions a mark at the median mark. Both corrections
    vanish as marks grow in number. Of a plateau the middle is chosen. The returned scores are not smoothed.

    Resampling the marks and :data:`ERROR_OF_ONE_MARK` tell how far the choice depends on the marks at hand.
    With a prior, the threshold moves from there towards the choice as far as that error warrants, further
    for areas, which have several scores a mark (:data:`PRIOR_SPREAD_OF_AREAS`). It always finds at
    least :data:`LEAST_RECALL` of the marks that can be found at all.

    Args:
        scores_of_marks: the score at each held-out mark, 0 where nothing was found: for pixels, of those
            inside marks; for cells see :func:`~sparseshot.metrics.curves.mark_scores`.
        scores_of_all: the scores of all pixels, or of all cells found, marked or not.
        marks: number of independent marks, if ``scores_of_marks`` are pixels; by default each score is one.
        places: denominator of P; by default the number of ``scores_of_all``. To compare the criteria of
            models that find different numbers of cells, give e.g. the number of grid locations.
        prior: the threshold that the loss is built for, if it is built for one.
        spread: standard deviation, in logits, of the best threshold about the prior; by default
            :data:`PRIOR_SPREAD`, or :data:`PRIOR_SPREAD_OF_AREAS` for areas.

    Returns:
        The calibration; threshold 0.5 with a criterion of 0 if no mark was found at any score.

    >>> random = np.random.default_rng(0)
    >>> cells, others = random.normal(-1, 0.5, 1000), random.normal(-5, 1, 9000)  # trained on few marks,
    >>> scores = 1 / (1 + np.exp(-np.concatenate([cells, others])))  # so a cell scores 0.27, not 0.9
    >>> calibration = calibrate_threshold(scores[:50], scores)
    >>> bool(0.05 < calibration.threshold < 0.15), calibration.recall
    (True, 0.98)
    """
    marked, everything = _histogram(scores_of_marks), _histogram(scores_of_all)
    if not marked.total:
        raise InputError("no held-out marks to calibrate with; hold out at least one")
    independent = marked.total if marks is None else marks
    if not 0 < independent <= marked.total:
        raise InputError(
            f"marks is {marks} for {marked.total} scores of marks; a mark has at least one score"
        )
    total = everything.total if places is None else places

    recall = marked.at_least() / marked.total
    predicted = everything.at_least()
    if not _usable(recall, predicted).any():
        return Calibration(threshold=0.5, criterion=0.0, recall=0.0, positive_share=0.0)
    logit, error = _choice(marked.counts, predicted, independent)
    if prior is not None:
        usual = PRIOR_SPREAD_OF_AREAS if independent < marked.total else PRIOR_SPREAD
        spread = usual if spread is None else spread
        middle, weight = np.log(prior / (1 - prior)), spread**2 / (spread**2 + error**2)
        logit = middle + weight * (logit - middle)
        error = np.sqrt(weight) * error if np.isfinite(error) else spread
    reachable = np.flatnonzero(recall >= LEAST_RECALL * recall[1])[-1]
    chosen = min(int(np.searchsorted(_LOGITS, logit - 1e-9)), reachable)
    low, high = np.searchsorted(_LOGITS, (logit - _NINETY * error, logit + _NINETY * error))
    share = predicted[chosen] / total if total else 0.0
    criterion = float(recall[chosen] ** 2 / share) if share else 0.0
    likely = (recall[chosen] * independent + 1) / (independent + 2)  # else 3 of 3 marks had no error
    return Calibration(
        threshold=float(THRESHOLDS[chosen]),
        criterion=criterion,
        recall=float(recall[chosen]),
        positive_share=float(share),
        criterion_error=float(2 * criterion * np.sqrt((1 - likely) / (likely * independent))),
        low=float(THRESHOLDS[min(low, chosen)]),
        high=float(THRESHOLDS[max(min(high, len(THRESHOLDS) - 1), chosen)]),
        marks=independent,
    )


def _choice(marked: NDArray[np.int64], predicted: NDArray[np.int64], marks: int) -> tuple[float, float]:
    """Return the best threshold as a logit, and its standard error by resampling the marks."""
    random = np.random.default_rng(0)
    drawn = random.multinomial(marks, marked / marked.sum(), _RESAMPLES)
    choices = [_best_logit(each, predicted, marks) for each in drawn if each[1:].any()]
    error = math.hypot(float(np.std(choices)), ERROR_OF_ONE_MARK / math.sqrt(marks)) if choices else math.inf
    return _best_logit(marked, predicted, marks), error


def _best_logit(marked: NDArray[np.int64], predicted: NDArray[np.int64], marks: int) -> float:
    """Return the logit at which the stable form of the criterion is highest."""
    recall = np.cumsum(marked[::-1])[::-1] / marked.sum()
    usable = _usable(recall, predicted)
    median = np.flatnonzero(usable & (recall >= recall[1] / 2))[-1]
    doubt = DOUBT_IN_MARKS * predicted[median] / (recall[median] * marks)
    steady = _smoothed(marked, marks)
    value = np.where(usable, steady**2 / np.maximum(predicted + doubt, 1), 0)
    best = np.flatnonzero(value >= value.max() * (1 - 1e-9))
    return float(_LOGITS[best[len(best) // 2]])


def _usable(recall: NDArray[np.float64], predicted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the bins that a threshold may be chosen from."""
    usable = recall > 0
    usable[0] = False  # its bin also holds what was not found
    if predicted[0]:
        # Nothing was found below the lowest score, which tells nothing about what is there.
        lowest = np.flatnonzero(predicted == predicted[0])[-1]
        usable[:lowest] = False
    return usable


def _histogram(scores: ArrayLike | ScoreHistogram) -> ScoreHistogram:
    return scores if isinstance(scores, ScoreHistogram) else ScoreHistogram.of(scores)


def _smoothed(counts: NDArray[np.int64], marks: int) -> NDArray[np.float64]:
    """Return recall over the thresholds, smoothed by a Gaussian over the scores of the marks."""
    found = counts[1:]
    below = np.cumsum(found) / found.sum()
    quartiles = np.searchsorted(below, [0.25, 0.75])
    bins = np.arange(len(found))
    spread = np.sqrt(np.average((bins - np.average(bins, weights=found)) ** 2, weights=found))
    if quartiles[1] > quartiles[0]:
        spread = min(spread, (quartiles[1] - quartiles[0]) / 1.34)
    smooth = gaussian_filter1d(found.astype(np.float64), 0.9 * max(spread, 1) * marks**-0.2, mode="reflect")
    recall = np.cumsum(np.append(smooth[::-1], counts[0]))[::-1] / counts.sum()
    return np.asarray(recall)
