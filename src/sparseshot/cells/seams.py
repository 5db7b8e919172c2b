"""Suppression over the seams between bands: exact, while only what is still open is kept in memory."""

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.buckets import Grid, checked_points, checked_radius, checked_scores, sorted_keys
from sparseshot.compiled import compiled

DROPPED, KEPT, OPEN = 0, 1, 2
"""What is known of a point: a surer one takes its place; it stays; or points not yet seen may decide it."""


def settle(
    xy: NDArray[np.float64], score: NDArray[np.floating], *, radius: float, edge_y: float
) -> NDArray[np.int8]:
    """Decide the points that no unseen point at ``edge_y`` or below can change any more.

    :func:`~sparseshot.cells.suppression.suppress` goes from the surest point down, so whether one stays may
    hang on a chain of surer ones that leads out of what was seen. From the surest down, a point is

    - dropped, if a surer point within the radius is kept;
    - else open, if a surer point within the radius is open, or ``edge_y`` is within the radius;
    - else kept.

    A kept point has no open one within the radius, and no unseen one: so the open points are all that the
    next band needs to know, and band after band gives what ``suppress`` of all points at once would.

    Args:
        xy: ``(N, 2)`` places.
        score: ``(N,)`` confidence; only its order counts.
        radius: distance in the unit of ``xy``.
        edge_y: every point not yet seen has this y or a larger one; ``inf`` when there are none.

    Returns:
        ``(N,)`` of :data:`DROPPED`, :data:`KEPT` and :data:`OPEN`.

    >>> xy, score = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 5.0], [0.0, 7.0]]), np.array([0.9, 0.6, 0.7, 0.8])
    >>> settle(xy, score, radius=2.5, edge_y=9.0).tolist()  # the last may go, then the third would stay
    [1, 0, 2, 2]
    >>> settle(xy, score, radius=2.5, edge_y=np.inf).tolist()
    [1, 0, 0, 1]
    """
    xy, radius = checked_points(xy, "xy"), checked_radius(radius)
    surety = checked_scores(score, points=len(xy))
    # A little wider than the radius, so that no rounding puts a neighbour two buckets away.
    grid = Grid.over(xy, side=1.001 * radius)
    place, keys = sorted_keys(grid.keys(xy))
    xy, surety = xy.take(place, axis=0), surety.take(place)
    order = np.lexsort((xy[:, 1], xy[:, 0], -surety))
    state = np.empty(len(xy), np.int8)
    state[place] = _settled(xy, keys, order, grid.stride, radius, edge_y)
    return state


@compiled
def _settled(  # noqa: PLR0917  compiled code takes arrays one by one
    xy: NDArray[np.float64],
    keys: NDArray[np.int64],
    order: NDArray[np.int64],
    stride: int,
    radius: float,
    edge_y: float,
) -> NDArray[np.int8]:
    """Decide points that are sorted by bucket, in the order from the surest down."""
    state = np.full(len(xy), DROPPED, np.int8)  # a point not yet looked at is less sure, and hinders nobody
    for p in order:
        hindered = KEPT if xy[p, 1] + radius < edge_y else OPEN
        for row in range(-1, 2):
            first = keys[p] + row * stride - 1
            q = np.searchsorted(keys, first)
            while q < len(keys) and keys[q] <= first + 2 and hindered != DROPPED:
                dx, dy = xy[q, 0] - xy[p, 0], xy[q, 1] - xy[p, 1]
                if state[q] != DROPPED and dx * dx + dy * dy <= radius * radius:
                    hindered = DROPPED if state[q] == KEPT else OPEN
                q += 1
        state[p] = hindered
    return state
