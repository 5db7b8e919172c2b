"""Places that are near others, or inside regions."""

import numpy as np
import shapely
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


def is_inside(xy: ArrayLike, regions: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which places are inside one of the regions.

    >>> is_inside([[1, 1], [9, 9]], np.array([shapely.box(0, 0, 2, 2)])).tolist()
    [True, False]
    """
    return np.asarray(shapely.contains_xy(shapely.union_all(regions), np.asarray(xy, np.float64)))
