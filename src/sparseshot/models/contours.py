"""Smooth outlines of objects from their pixels."""

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.rings import offsets
from sparseshot.cells.trace import grown, turned
from sparseshot.compiled import compiled

TOLERANCE_PX = 0.5


def contours(
    bordered: NDArray[np.int32], which: NDArray[np.bool_], *, x0: int, y0: int
) -> NDArray[np.object_]:
    """Return outlines through the midpoints of pixel edges, without holes, simplified to 0.5 px.

    Midpoints are nearer to the true outline than pixel corners: the IoU of ellipses of the size of nuclei
    with the true ones is 0.95 with 14 vertices, instead of 0.94 with 39.

    Args:
        bordered: ``(H + 2, W + 2)`` objects numbered from 1, with a border of 0; each is edge-connected.
        which: ``(N,)`` the objects to return, in the order of their numbers.
        x0: x of the first pixel inside the border.
        y0: y of it.

    >>> y, x = np.mgrid[:20, :20]
    >>> disc = ((x - 9) ** 2 + (y - 9) ** 2 < 64).astype(np.int32)
    >>> [int(shapely.get_num_coordinates(each)) for each in contours(disc, np.array([True]), x0=0, y0=0)]
    [13]
    """
    corner = np.array([x0 - 1, y0 - 1])
    smooth = _polygons(bordered, which, TOLERANCE_PX, corner)
    broken = ~shapely.is_valid(smooth)
    if broken.any():
        again = which.copy()
        again[which] = broken
        # The slow way, which keeps outlines valid, only where the fast way breaks one.
        smooth[broken] = shapely.simplify(_polygons(bordered, again, 0.0, corner), TOLERANCE_PX)
    return smooth


def _polygons(
    bordered: NDArray[np.int32], which: NDArray[np.bool_], tolerance_px: float, corner: NDArray[np.int64]
) -> NDArray[np.object_]:
    if not which.any():
        return np.empty(0, object)
    doubled, lengths, owner = _outlines(bordered, np.append(False, which), 2 * tolerance_px)
    polygons: NDArray[np.object_] = shapely.from_ragged_array(
        shapely.GeometryType.POLYGON, doubled / 2 + corner, (offsets(lengths), np.arange(len(lengths) + 1))
    )
    return polygons[np.argsort(owner)]


@compiled
def _outlines(
    bordered: NDArray[np.int32], wanted: NDArray[np.bool_], tolerance: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Return the vertices of closed outlines in half pixels, the length of each, and its object."""
    flat, row_step = bordered.ravel(), bordered.shape[1]
    count = np.count_nonzero(wanted)
    vertices, used = np.empty((16 * count, 2), np.int64), 0
    lengths, owner = np.empty(count, np.int64), np.empty(count, np.int32)
    ring, found = np.empty((64, 2), np.int64), 0
    is_left = wanted.copy()
    for first in range(len(flat)):
        label = flat[first]
        if label == 0 or not is_left[label]:
            continue
        is_left[label] = False
        ring, length = _walk(flat, row_step, first, ring)
        kept = _simplify(ring[:length], tolerance)
        size = int(np.count_nonzero(kept))
        if size < 3:  # a sliver, of which nothing can be left out
            kept[:] = True
            size = length
        vertices = grown(vertices, used + size + 1)
        vertices[used : used + size] = ring[:length][kept]
        vertices[used + size] = vertices[used]
        lengths[found], owner[found] = size + 1, label
        used, found = used + size + 1, found + 1
    return vertices[:used], lengths[:found], owner[:found]


@compiled
def _walk(
    flat: NDArray[np.int32], row_step: int, first: int, ring: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """Walk round an object with its pixels on the right, from its first pixel in reading order.

    Returns:
        The array ``ring``, or a larger one, with the midpoint of each pixel edge in half pixels; and their
        number.
    """
    steps = (1, row_step, -1, -row_step)
    dx, dy = (1, 0, -1, 0), (0, 1, 0, -1)
    label, place, direction, length = flat[first], first, 0, 0
    x, y = 2 * (first % row_step), 2 * (first // row_step)
    while length == 0 or place != first:
        ring = grown(ring, length + 1)
        ring[length, 0], ring[length, 1] = x + dx[direction], y + dy[direction]
        x, y, length = x + 2 * dx[direction], y + 2 * dy[direction], length + 1
        place += steps[direction]
        direction = turned(flat, row_step, place, direction, label)
    return ring, length


@compiled
def _simplify(ring: NDArray[np.int64], tolerance: float) -> NDArray[np.bool_]:
    """Return which vertices of a closed ring to keep, by Douglas and Peucker."""
    length = len(ring)
    kept = np.zeros(length, np.bool_)
    kept[0] = True
    ends = np.empty((length + 1, 2), np.int64)
    ends[0] = 0, length
    waiting = 1
    while waiting:
        waiting -= 1
        begin, end = ends[waiting]
        ax, ay = ring[begin]
        bx, by = ring[end % length]
        squared = (bx - ax) ** 2 + (by - ay) ** 2
        farthest, place = tolerance * tolerance, -1
        for k in range(begin + 1, end):
            x, y = ring[k, 0] - ax, ring[k, 1] - ay
            along = x * (bx - ax) + y * (by - ay)
            if along <= 0:
                distance = float(x * x + y * y)
            elif along >= squared:
                distance = float((ring[k, 0] - bx) ** 2 + (ring[k, 1] - by) ** 2)
            else:
                distance = (x * (by - ay) - y * (bx - ax)) ** 2 / squared
            if distance > farthest:
                farthest, place = distance, k
        if place >= 0:
            kept[place] = True
            ends[waiting] = begin, place
            ends[waiting + 1] = place, end
            waiting += 2
    return kept
