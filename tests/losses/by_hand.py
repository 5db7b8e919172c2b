"""Exclusive cross-entropy location by location, in float64, straight from its formula; no torch."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def probabilities(z: Sequence[float]) -> list[float]:
    """Return the probabilities of background and of each class."""
    if len(z) == 1:
        z = [0.0, z[0]]
    largest = max(z)
    e = [math.exp(v - largest) for v in z]
    return [v / sum(e) for v in e]


def location(
    z: Sequence[float], y: int, *, annotated: bool, rho: float, beta: float, alpha: float, gamma: float
) -> float:
    """Return the loss of one location that is not ignored."""
    p = probabilities(z)
    if annotated:
        return -math.log(p[y])
    foreground, background = sum(p[1:]), p[0]
    if foreground >= rho**beta and rho**beta < 1:
        return 0.0
    return -alpha * float(foreground**gamma) * math.log(background)


def exclusive(
    logits: Floats,
    target: NDArray[np.int64],
    annotated: NDArray[np.bool_],
    *,
    rho: float,
    beta: float = 1.0,
    alpha: float = 1.0,
    gamma: float = 0.0,
    class_weights: Sequence[float] | None = None,
) -> tuple[Floats, float]:
    """Return the losses (N, *) and their mean."""
    losses, total = np.zeros(target.shape), 0.0
    for place in np.ndindex(*target.shape):
        y = int(target[place])
        if y == -100:
            continue
        certain = bool(annotated[place])
        w = 1.0 if class_weights is None else class_weights[y if certain else 0]
        z = [float(v) for v in logits[place[0], :, *place[1:]]]
        losses[place] = w * location(z, y, annotated=certain, rho=rho, beta=beta, alpha=alpha, gamma=gamma)
        total += w
    return losses, float(losses.sum()) / total if total > 0 else 0.0
