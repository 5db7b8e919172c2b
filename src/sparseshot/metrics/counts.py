"""Counts of true positives, false positives and misses, which add up over tiles, and confidence intervals."""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sparseshot.errors import InputError


def f1_score(tp: ArrayLike, fp: ArrayLike, fn: ArrayLike) -> NDArray[np.float64]:
    """Return 2·tp / (2·tp + fp + fn), which on pixels is the Dice coefficient; 1 where all are 0.

    Nothing to find and nothing found is correct. A score of 1 there, instead of nan, lets all models be
    averaged over the same images: one with false positives on empty glass scores 0 there.

    >>> f1_score([3, 0, 0], [1, 0, 2], [1, 0, 0])
    array([0.75, 1.  , 0.  ])
    """
    tp, fp, fn = (np.asarray(count, dtype=np.float64) for count in (tp, fp, fn))
    total = 2 * tp + fp + fn
    return np.divide(2 * tp, total, out=np.ones_like(total), where=total > 0)


@dataclass(frozen=True)
class Counts:
    """Numbers of true positives (``tp``), false positives (``fp``) and misses (``fn``): cells, or pixels.

    >>> one, other = Counts(tp=8, fp=2, fn=4), Counts(tp=1, fp=0, fn=0)
    >>> one + other
    Counts(tp=9, fp=2, fn=4)
    >>> (one + other).precision, (one + other).recall, (one + other).f1
    (0.8181818181818182, 0.6923076923076923, 0.75)
    >>> sum([one, other], Counts()).f1  # pooled: all cells have the same weight
    0.75
    >>> (one.f1 + other.f1) / 2  # the mean: all images have the same weight
    0.8636363636363636
    """

    tp: int = 0
    fp: int = 0
    fn: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(own + more for own, more in zip(astuple(self), astuple(other), strict=True)))

    @property
    def precision(self) -> float:
        """Share of the found that is true; nan where nothing was found."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float:
        """Share of the true that was found; nan where nothing is true."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> float:
        """See :func:`f1_score`."""
        return float(f1_score(self.tp, self.fp, self.fn))

    @property
    def dice(self) -> float:
        """The name of :attr:`f1` when pixels were counted."""
        return self.f1


def mask_counts(truth: ArrayLike, found: ArrayLike, *, where: ArrayLike | None = None) -> Counts:
    """Count the pixels of two masks of one shape; with ``where``, only pixels inside it.

    >>> mask_counts([[1, 1], [0, 0]], [[1, 0], [1, 0]])
    Counts(tp=1, fp=1, fn=1)
    """
    masks = [np.asarray(mask, dtype=np.bool_) for mask in (truth, found, where) if mask is not None]
    if len({mask.shape for mask in masks}) > 1:
        raise InputError(
            f"masks of different shapes {[mask.shape for mask in masks]}; bring them to one size"
        )
    truth_mask, found_mask = masks[:2] if where is None else [mask & masks[2] for mask in masks[:2]]
    tp = int(np.count_nonzero(truth_mask & found_mask))
    return Counts(
        tp=tp,
        fp=int(np.count_nonzero(found_mask)) - tp,
        fn=int(np.count_nonzero(truth_mask)) - tp,
    )


def exclusive_recall(wanted: Counts, others: Counts) -> float:
    """Return Rec(y)·(1 − Rec(≠y)): the recall of a class, lowered by the share of other cells found as it.

    It needs no exhaustive truth, only marks of the class and of what is easily confused with it. The counts
    come from matching what was found as the class with marks of both kinds at once, see
    :func:`~sparseshot.metrics.matching.exclusive_counts`. Without marks of other classes it is the recall.

    >>> exclusive_recall(Counts(tp=8, fn=2), Counts(tp=1, fn=3))
    0.6000000000000001
    """
    return wanted.recall * (1 - others.recall if others.tp + others.fn else 1.0)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


RESAMPLED_AT_ONCE = 2**20
"""Draws held in memory at a time."""


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


def wilson_interval(hits: int, total: int, *, level: float = 0.95) -> Interval:
    """Return Wilson's interval of a share with ``hits`` of ``total``; 0 to 1 if the total is 0.

    Unlike p ± 1.96·√(p(1−p)/n) it stays within 0 and 1, and is usable with few marks.

    >>> low, high = wilson_interval(5, 5)
    >>> round(low, 2), high
    (0.57, 1.0)
    """
    if not 0 <= hits <= total:
        raise InputError(f"{hits} hits of {total}; hits are between 0 and the total")
    _check_level(level)
    if total == 0:
        return Interval(0.0, 1.0)
    # As scipy.stats.binomtest, whose import takes longer than all others but that of torch.
    z, share = float(special.ndtri((1 + level) / 2)), hits / total
    middle = share + z**2 / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    low, high = (max(0.0, min(1.0, end / (1 + z**2 / total))) for end in (middle - half, middle + half))
    return Interval(low if hits else 0.0, high if hits < total else 1.0)


def bootstrap_interval(
    per_image: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of a figure, over images.

    Images are resampled, not cells or pixels, because cells of one image share its stain, its organ and its
    errors. With few images the interval is somewhat too narrow.

    Args:
        per_image: ``(I,)`` a value of each image, for the interval of the mean, without nan. Or ``(I, K)``
            counts of each image, e.g. tp, fp, fn.
        statistic: maps ``(R, K)`` means over the images of R resamples to ``(R,)``. A ratio of counts is the
            same for means as for sums. Optional where K is 1.
        level: share of the resamples inside the interval.
        resamples: number of resamples.
        seed: of the resampling.

    >>> from sparseshot.metrics import f1_score
    >>> counts = [[90, 10, 5], [40, 30, 20], [70, 10, 10], [10, 0, 30]]
    >>> low, high = bootstrap_interval(counts, lambda rows: f1_score(*rows.T))
    >>> round(low, 2), round(high, 2)
    (0.56, 0.9)
    """
    rows = np.asarray(per_image, dtype=np.float64)
    if rows.ndim == 1:
        rows = rows[~np.isnan(rows)][:, None]
    if rows.ndim != 2 or not rows.size:
        raise InputError(
            f"per_image has shape {rows.shape}; give (images,) or (images, counts) of some images"
        )
    if statistic is None and rows.shape[1] != 1:
        raise InputError(f"per_image has {rows.shape[1]} columns; give a statistic of them")
    _check_level(level)
    random = np.random.default_rng(seed)
    images = len(rows)
    at_once = max(1, RESAMPLED_AT_ONCE // images)
    means = np.concatenate(
        [
            rows[random.integers(images, size=(min(at_once, resamples - done), images))].mean(axis=1)
            for done in range(0, resamples, at_once)
        ]
    )
    values = means[:, 0] if statistic is None else statistic(means)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give a share between 0 and 1, e.g. 0.95")
