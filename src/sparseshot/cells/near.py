"""Places that are near others."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree


def is_near(xy: ArrayLike, others: ArrayLike, *, radius: float) -> NDArray[np.bool_]:
    """Return which places have one of the others within the radius.

    >>> is_near([[0, 0], [9, 9]], [[1, 1]], radius=2).tolist()
    [True, False]
    """
    places, others = np.asarray(xy), np.asarray(others)
    if not len(places) or not len(others):
        return np.zeros(len(places), bool)
    distance, _ = cKDTree(others).query(places)
    return np.asarray(distance <= radius)
