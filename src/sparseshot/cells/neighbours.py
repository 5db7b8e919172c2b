"""Neighbours of cells: the distance to the nearest of each class, and numbers within radii."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.cells.buckets import Buckets, checked_points, sorted_keys
from sparseshot.compiled import compiled

NEAR_UM, FAR_UM = 20.0, 50.0
_DECIMALS = 2


def neighbour_measurements(
    xy: NDArray[np.float64], label: NDArray[np.integer], *, classes: Sequence[str], mpp: float
) -> dict[str, NDArray[np.float32]]:
    """Measure the distance of each cell to the nearest other cell of each class, and count its neighbours.

    Almost every cell has neighbours of almost every class within 50 µm: these are found in square buckets of
    that side, in one pass. Only the others are looked up in a KD-tree of the class.

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
    label = np.asarray(label, np.int64)
    grid = Buckets.over(um, side=FAR_UM)
    order, keys = sorted_keys(grid.keys(um))
    squared, counts = _near(um[order], label[order], keys, grid.stride, len(classes))
    columns: dict[str, NDArray[np.float32]] = {}
    for index, name in enumerate(classes):
        distance = np.empty(len(um))
        distance[order] = np.sqrt(squared[:, index])
        _look_farther(distance, um, label == index)
        columns[f"Distance to detection {name} µm"] = np.round(distance, _DECIMALS).astype(np.float32)
    for index, radius_um in enumerate((NEAR_UM, FAR_UM)):
        column = np.empty(len(um), np.float32)
        column[order] = counts[:, index]
        columns[f"Neighbors within {radius_um:.0f} µm"] = column
    return columns


def _look_farther(
    distance: NDArray[np.float64], um: NDArray[np.float64], of_class: NDArray[np.bool_]
) -> None:
    """Fill in the distances that are infinite: NaN if there is no other cell of the class."""
    far = np.isinf(distance)
    if not far.any():
        return
    tree = KDTree(um[of_class])
    for chosen, rank in ((far & of_class, 2), (far & ~of_class, 1)):  # the first of its own class is itself
        if chosen.any() and tree.n >= rank:
            distance[chosen] = tree.query(um[chosen], k=[rank])[0][:, 0]
    distance[np.isinf(distance)] = np.nan


@compiled
def _near(xy: Any, label: Any, keys: Any, stride: int, classes: int) -> Any:
    """Return the least squared distance by class, and the numbers within both radii, of points in order.

    A bucket, the one before it and the one after it are next to each other in the order, so the
    neighbourhood of a point is three ranges, which only move forwards from one point to the next.
    """
    near, far = NEAR_UM * NEAR_UM, FAR_UM * FAR_UM
    count = len(xy)
    squared = np.full((count, classes), np.inf, np.float64)
    counts = np.zeros((count, 2), np.int32)
    start, stop = np.zeros(3, np.int64), np.zeros(3, np.int64)
    for i in range(count):
        x, y = xy[i, 0], xy[i, 1]
        for row in range(3):
            key = keys[i] + (row - 1) * stride
            while start[row] < count and keys[start[row]] < key - 1:
                start[row] += 1
            while stop[row] < count and keys[stop[row]] <= key + 1:
                stop[row] += 1
            for j in range(start[row], stop[row]):
                dx, dy = xy[j, 0] - x, xy[j, 1] - y
                d = dx * dx + dy * dy
                if d <= far and j != i:
                    counts[i, 1] += 1
                    counts[i, 0] += d <= near
                    if label[j] >= 0 and d < squared[i, label[j]]:
                        squared[i, label[j]] = d
    return squared, counts
