"""Non-maximum suppression of points: of those that stand for the same cell, keep the one of highest score."""

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.buckets import Buckets, checked_points, checked_radius, checked_scores
from sparseshot.compiled import compiled

DROPPED, KEPT, OPEN = 0, 1, 2
"""State of a point: dropped for another one, kept, or still depending on points not yet seen."""


def settle(
    xy: NDArray[np.float64], score: NDArray[np.floating], *, radius: float, edge_y: float
) -> NDArray[np.int8]:
    """Decide the points that no unseen point at ``edge_y`` or below can change any more.

    Points are taken from the highest score down; among equal scores by the smaller x, then the smaller y, so
    that the result does not depend on their order. A point is

    - dropped, if a point before it within the radius is kept;
    - else open, if a point before it within the radius is open, or ``edge_y`` is within the radius;
    - else kept.

    A kept point has no open one within the radius, and no unseen one. So the open points are all that the
    next band needs, and band after band yields the same points as all at once.

    Args:
        xy: ``(N, 2)`` coordinates.
        score: ``(N,)`` confidence; only its order counts.
        radius: distance in the unit of ``xy``; a point at this very distance is within.
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
    score = checked_scores(score, points=len(xy))
    # A little wider than the radius, so that no rounding puts a neighbour two buckets away.
    grid = Buckets.over(xy, side=1.001 * radius)
    place, keys = grid.sort(xy)
    xy, score = xy.take(place, axis=0), score.take(place)
    order = np.argsort(-score)
    ranked = score[order]
    if (ranked[1:] == ranked[:-1]).any():  # as seldom as it can be, since it takes several times as long
        order = np.lexsort((xy[:, 1], xy[:, 0], -score))
    begins = np.diff(keys, prepend=-1) != 0  # keys are positive, so the first one counts
    starts, bucket = np.flatnonzero(begins), np.cumsum(begins) - 1
    state = np.empty(len(xy), np.int8)
    state[place] = _settled(xy, bucket, keys[starts], starts, order, grid.stride, radius, edge_y)
    return state


@compiled
def _settled(  # noqa: PLR0917  compiled code takes arrays one by one
    xy: NDArray[np.float64],
    bucket: NDArray[np.int64],
    keys: NDArray[np.signedinteger],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    stride: int,
    radius: float,
    edge_y: float,
) -> NDArray[np.int8]:
    """Decide points that are sorted by bucket; ``keys`` and ``starts`` are those of each bucket.

    Each bucket lists its points that were not dropped, so that crowds cost no more than scattered points.
    """
    first = np.zeros((len(starts), 3), np.int64)  # in each of three rows of buckets, where neighbours begin
    for row in range(3):
        b = 0
        for own in range(len(starts)):
            while b < len(starts) and keys[b] < keys[own] + (row - 1) * stride - 1:
                b += 1
            first[own, row] = b
    state = np.full(len(xy), DROPPED, np.int8)
    member, alive = np.empty(len(xy), np.int64), np.zeros(len(starts), np.int64)
    for p in order:
        own = bucket[p]
        verdict = KEPT if xy[p, 1] + radius < edge_y else OPEN
        for row in range(3):
            b = first[own, row]
            while b < len(starts) and keys[b] <= keys[own] + (row - 1) * stride + 1 and verdict != DROPPED:
                for q in member[starts[b] : starts[b] + alive[b]]:
                    dx, dy = xy[q, 0] - xy[p, 0], xy[q, 1] - xy[p, 1]
                    if dx * dx + dy * dy <= radius * radius:
                        verdict = OPEN
                        if state[q] == KEPT:
                            verdict = DROPPED
                            break
                b += 1
        state[p] = verdict
        if verdict != DROPPED:
            member[starts[own] + alive[own]] = p
            alive[own] += 1
    return state
