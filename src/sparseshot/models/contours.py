"""Smooth outlines of objects from their pixels."""

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.rings import offsets
from sparseshot.cells.trace import follow
from sparseshot.compiled import compiled

TOLERANCE_PX = 0.5


def contours(pieces: NDArray[np.int32], *, x0: int, y0: int) -> NDArray[np.object_]:
    """Return each outline through the midpoints of its pixel edges, without holes, simplified to 0.5 px.

    Midpoints are nearer to the true outline than pixel corners: the IoU of ellipses of the size of nuclei
    with the true ones is 0.95 with 14 vertices, instead of 0.94 with 39.

    Args:
        pieces: ``(H, W)`` objects numbered from 1, without a gap; each is edge-connected.
        x0: added to every x first, so that the result does not depend on the window.
        y0: added to every y.

    >>> y, x = np.mgrid[:20, :20]
    >>> disc = (x - 9) ** 2 + (y - 9) ** 2 < 64
    >>> [int(shapely.get_num_coordinates(each)) for each in contours(disc.astype(np.int32), x0=0, y0=0)]
    [13]
    """
    ways = follow(pieces)
    shells = np.flatnonzero(~ways.hole)
    shells = shells[np.argsort(ways.piece[shells])]
    if not len(shells):
        return np.empty(0, object)
    vertices, counts = _middles(ways.xy, ways.begin[shells], ways.begin[shells + 1], x0, y0)
    drawn = shapely.from_ragged_array(
        shapely.GeometryType.POLYGON, vertices, (offsets(counts), np.arange(len(shells) + 1))
    )
    # The slow way, which keeps outlines valid, only where the fast way breaks one.
    simple: NDArray[np.object_] = shapely.simplify(drawn, TOLERANCE_PX, preserve_topology=False)
    broken = (shapely.get_type_id(simple) != shapely.GeometryType.POLYGON) | ~shapely.is_valid(simple)
    broken |= shapely.is_empty(simple)
    simple[broken] = shapely.simplify(drawn[broken], TOLERANCE_PX, preserve_topology=True)
    return simple


@compiled
def _middles(
    xy: NDArray[np.int32], first: NDArray[np.int64], end: NDArray[np.int64], x0: int, y0: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the midpoint of every pixel edge along closed rings."""
    length = 0
    for ring in range(len(first)):
        for k in range(first[ring], end[ring] - 1):
            length += abs(xy[k + 1, 0] - xy[k, 0]) + abs(xy[k + 1, 1] - xy[k, 1])
    out = np.empty((length + len(first), 2))
    counts = np.empty(len(first), np.int64)
    at = 0
    for ring in range(len(first)):
        start = at
        for k in range(first[ring], end[ring] - 1):
            dx, dy = xy[k + 1, 0] - xy[k, 0], xy[k + 1, 1] - xy[k, 1]
            steps = abs(dx) + abs(dy)
            for step in range(steps):
                out[at, 0] = x0 + xy[k, 0] + (step + 0.5) * dx / steps
                out[at, 1] = y0 + xy[k, 1] + (step + 0.5) * dy / steps
                at += 1
        out[at] = out[start]
        at += 1
        counts[ring] = at - start
    return out, counts
