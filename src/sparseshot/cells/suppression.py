"""Of points that stand for the same cell, keep the surest."""

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.buckets import MARGIN, Grid, checked_points, checked_radius, checked_scores, sorted_keys
from sparseshot.cells.table import Cells
from sparseshot.compiled import compiled
from sparseshot.errors import InputError

ROWS = 2 * MARGIN + 1


def suppress(xy: NDArray[np.float64], score: NDArray[np.floating], *, radius: float) -> NDArray[np.bool_]:
    """Mark the points that stay when every point within a radius of a surer one that stays goes.

    Greedy non-maximum suppression: points are taken from the highest score down, and each one taken drops
    all others at a distance of ``radius`` or less. Among equal scores the smaller x goes first, then the
    smaller y, so the points that stay do not depend on the order in which they came; of points equal in all
    three, one stays. Time grows with the number of points, however crowded they are.

    Args:
        xy: ``(N, 2)`` places.
        score: ``(N,)`` confidence; only its order counts.
        radius: distance in the unit of ``xy``.

    Returns:
        ``(N,)`` bool, True for the points that stay.

    >>> suppress(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]), np.array([0.7, 0.8, 0.9]), radius=3)
    array([ True, False,  True])
    """
    xy, radius = checked_points(xy, "xy"), checked_radius(radius)
    surety = checked_scores(score, points=len(xy))

    # A bucket of this side is a little less than the radius across, so at most one of its points stays;
    # and whatever lies within the radius of a point is at most two buckets away.
    grid = Grid.over(xy, side=0.7 * radius)
    order, keys = sorted_keys(grid.keys(xy))
    kept = np.zeros(len(xy), np.bool_)
    kept[order] = _kept(xy.take(order, axis=0), surety.take(order), keys, grid.stride, radius * radius)
    return kept


def suppress_cells(cells: Cells, *, radius_um: float) -> Cells:
    """Return the cells that :func:`suppress` keeps, whatever their class: one nucleus is one cell.

    >>> cells = Cells([[0, 0], [8, 0], [40, 0]], score=[0.5, 0.9, 0.4], mpp=0.25)
    >>> suppress_cells(cells, radius_um=3).xy[:, 0]
    array([ 8., 40.])
    """
    if cells.mpp is None:
        raise InputError("these cells carry no mpp; set it with replace(cells, mpp=0.25)")
    if cells.score is None:
        raise InputError(
            "these cells carry no score, so none is surer than another; only predictions have one"
        )
    return cells[suppress(cells.xy, cells.score, radius=radius_um / cells.mpp)]


@compiled
def _kept(  # noqa: PLR0912  one loop over the state of every bucket; apart it would pass twelve arrays
    xy: NDArray[np.float64],
    score: NDArray[np.float64],
    keys: NDArray[np.signedinteger],
    stride: int,
    radius_squared: float,
) -> NDArray[np.bool_]:
    """Decide each point once all surer ones near it are decided; the points are sorted by bucket.

    Walking from bucket to bucket, not from score to score, keeps to nearby memory. Where a surer point
    nearby is still open, its bucket goes on a stack and comes first; scores rise along the stack, so no
    bucket is on it twice.
    """
    start, bucket_key = _bounds(keys)
    near = _nearby(bucket_key, stride)
    buckets = len(bucket_key)
    heap = np.empty(len(keys), np.int32)  # each bucket is a heap, its surest point on top
    size = np.empty(buckets, np.int32)
    for b in range(buckets):
        size[b] = start[b + 1] - start[b]
        for p in range(start[b], start[b + 1]):
            heap[p] = p
        for node in range(size[b] // 2 - 1, -1, -1):
            _sink(heap, start[b], node, size[b], xy, score)

    kept = np.zeros(len(keys), np.bool_)
    done = np.zeros(buckets, np.bool_)  # the point on top stays, or none is left
    stack = np.empty(buckets, np.int32)
    for bucket in range(buckets):
        if done[bucket]:
            continue
        stack[0], depth = bucket, 1
        while depth:
            b = stack[depth - 1]
            p = heap[start[b]]
            dropped, open_bucket = False, -1
            for row in range(ROWS):
                q = near[b, row]
                last = bucket_key[b] + (row - MARGIN) * stride + MARGIN
                while q < buckets and bucket_key[q] <= last and not dropped:
                    if q != b and size[q]:
                        other = heap[start[q]]
                        if done[q]:
                            dx, dy = xy[other, 0] - xy[p, 0], xy[other, 1] - xy[p, 1]
                            dropped = dx * dx + dy * dy <= radius_squared
                        elif _surer(other, p, xy, score):
                            open_bucket = q
                    q += 1
            if open_bucket >= 0 and not dropped:
                stack[depth] = open_bucket
                depth += 1
                continue
            if dropped:
                size[b] -= 1
                heap[start[b]] = heap[start[b] + size[b]]
                _sink(heap, start[b], 0, size[b], xy, score)
            else:
                kept[p] = True
            done[b] = not dropped or size[b] == 0
            # The bucket at the bottom stays until it is done; any other gave the answer that was waited for.
            if depth > 1 or done[b]:
                depth -= 1
    return kept


@compiled
def _bounds(keys: NDArray[np.signedinteger]) -> tuple[NDArray[np.int32], NDArray[np.signedinteger]]:
    """Return where each bucket starts among the sorted points, with the end of the last, and its key."""
    start = np.empty(len(keys) + 1, np.int32)
    buckets = 0
    for i in range(len(keys)):
        if i == 0 or keys[i] != keys[i - 1]:
            start[buckets] = i
            buckets += 1
    start[buckets] = len(keys)
    return start[: buckets + 1], keys[start[:buckets]]


@compiled
def _nearby(bucket_key: NDArray[np.signedinteger], stride: int) -> NDArray[np.int32]:
    """Give, in each of the rows around a bucket, the first bucket not further left than the margin."""
    near = np.empty((len(bucket_key), ROWS), np.int32)
    for row in range(ROWS):
        at = 0
        for b in range(len(bucket_key)):
            first = bucket_key[b] + (row - MARGIN) * stride - MARGIN
            while at < len(bucket_key) and bucket_key[at] < first:
                at += 1
            near[b, row] = at
    return near


@compiled
def _surer(i: int, j: int, xy: NDArray[np.float64], score: NDArray[np.float64]) -> bool:
    if score[i] != score[j]:
        return bool(score[i] > score[j])
    if xy[i, 0] != xy[j, 0]:
        return bool(xy[i, 0] < xy[j, 0])
    return bool(xy[i, 1] < xy[j, 1])


@compiled
def _sink(  # noqa: PLR0917  compiled code takes arrays one by one
    heap: NDArray[np.int32],
    start: int,
    node: int,
    size: int,
    xy: NDArray[np.float64],
    score: NDArray[np.float64],
) -> None:
    """Let the point at a node of the heap ``heap[start:start + size]`` sink below every surer one."""
    while 2 * node + 1 < size:
        child = 2 * node + 1
        if child + 1 < size and _surer(heap[start + child + 1], heap[start + child], xy, score):
            child += 1
        if not _surer(heap[start + child], heap[start + node], xy, score):
            return
        heap[start + child], heap[start + node] = heap[start + node], heap[start + child]
        node = child
