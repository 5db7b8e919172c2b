"""Neighbours of cells: the distance to the nearest of each class, and numbers within radii."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.cells.buckets import checked_points

NEAR_UM, FAR_UM = 20.0, 50.0
_DECIMALS = 2


def neighbour_measurements(
    xy: NDArray[np.float64], label: NDArray[np.integer], *, classes: Sequence[str], mpp: float
) -> dict[str, NDArray[np.float32]]:
    """Measure the distance of each cell to the nearest other cell of each class, and count its neighbours.

    Args:
        xy: ``(N, 2)`` places of all cells of the slide, in level-0 pixels.
        label: ``(N,)`` class of each; -1 for none.
        classes: names of the classes.
        mpp: µm per level-0 pixel.

    Returns:
        Columns by name. A distance is NaN if there is no other cell of the class.

    >>> places = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 40.0]])
    >>> columns = neighbour_measurements(places, np.array([0, 0, 1]), classes=("a", "b"), mpp=1.0)
    >>> {name: column.tolist() for name, column in columns.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'Distance to detection a µm': [30.0, 30.0, 40.0], 'Distance to detection b µm': [40.0, 50.0, nan],
     'Neighbors within 20 µm': [0.0, 0.0, 0.0], 'Neighbors within 50 µm': [2.0, 2.0, 2.0]}
    """
    um = checked_points(xy, "xy") * mpp
    columns: dict[str, NDArray[np.float32]] = {}
    for index, name in enumerate(classes):
        is_own, distance = np.asarray(label) == index, np.full(len(um), np.nan)
        tree = KDTree(um[is_own])
        for asked, rank in ((is_own, 2), (~is_own, 1)):  # the first of its own class is itself
            if asked.any() and tree.n >= rank:
                distance[asked] = tree.query(um[asked], k=[rank])[0][:, 0]
        columns[f"Distance to detection {name} µm"] = np.round(distance, _DECIMALS).astype(np.float32)
    tree = KDTree(um)
    for radius_um in (NEAR_UM, FAR_UM):
        counts = tree.query_ball_point(um, radius_um, return_length=True) - 1
        columns[f"Neighbors within {radius_um:.0f} µm"] = counts.astype(np.float32)
    return columns
