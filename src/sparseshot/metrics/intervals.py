"""Confidence intervals."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sparseshot.errors import InputError

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
