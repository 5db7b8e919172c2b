"""Valid outlines and their centroids, built from the rings of a file."""

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, centroids, joined

NO_AREA_PX2 = 1e-6
"""Area up to which an outline counts as empty."""

FARTHEST_PX = 1e9
"""Largest coordinate; no slide reaches it."""
NOT_FINITE = "cells with coordinates that are not finite left out"
NO_AREA = "outlines without area left out"


def build_outlines(
    source: Rings, repairs: Repairs, *, wanted: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    """Build outlines from rings that may be open, self-crossing, empty or not finite.

    Open rings are closed, which does not count as a repair since XML formats write them. Of a self-crossing
    polygon the largest part is kept. Outlines without area, or with coordinates that are not finite, become
    None, and so do those that are not ``wanted``, without being counted.

    Returns:
        ``(N,)`` valid shapely (multi)polygons, None where nothing could be built; and ``(N, 2)`` their
        centroids, NaN where there is none.

    >>> bow = np.array([[0, 0], [2, 2], [2, 0], [0, 2.0]])
    >>> repairs = Repairs()
    >>> one = np.array([0, 1])
    >>> shapes, places = build_outlines(Rings(bow, np.array([0, 4]), one, one), repairs)
    >>> shapes[0].wkt
    'POLYGON ((1 1, 2 2, 2 0, 1 1))'
    """
    xy, length = source.xy, np.diff(source.rings)
    ring_of = np.repeat(np.arange(len(length)), length)
    polygon_of = np.repeat(np.arange(len(source.polygons) - 1), np.diff(source.polygons))
    outline_of = np.repeat(np.arange(len(source.outlines) - 1), np.diff(source.outlines))
    wanted = np.ones(len(source.outlines) - 1, bool) if wanted is None else wanted
    is_far = ~(np.abs(xy) <= FARTHEST_PX).all(axis=1)
    finite = wanted.copy()
    finite[outline_of[polygon_of[ring_of[is_far]]]] = False

    some = length > 0
    first, last = source.rings[:-1][some], source.rings[1:][some] - 1
    corners = length.copy()
    corners[some] -= (xy[first] == xy[last]).all(axis=1)
    keep = (corners >= 3) & finite[outline_of[polygon_of]]
    shell = source.polygons[:-1][np.diff(source.polygons) > 0]
    keep &= np.isin(polygon_of, polygon_of[shell[keep[shell]]])  # holes fall with their shell
    of_kept = keep[ring_of]
    rings = shapely.linearrings(xy[of_kept], indices=(np.cumsum(keep) - 1)[ring_of[of_kept]])
    with_shell, polygon = np.unique(polygon_of[keep], return_inverse=True)
    shapes = joined(shapely.polygons(rings, indices=polygon), outline_of[with_shell], len(wanted))
    repairs.count(NOT_FINITE, (wanted & ~finite).sum())
    repairs.count(NO_AREA, (shapely.is_missing(shapes) & finite).sum())
    shapes = repair(shapes, repairs)
    return shapes, centroids(shapes)


def repair(shapes: NDArray[np.object_], repairs: Repairs) -> NDArray[np.object_]:
    """Make outlines valid; of a polygon keep the largest part, of a multipolygon all."""
    broken = np.flatnonzero(~shapely.is_valid(shapes) & ~shapely.is_missing(shapes))
    if not len(broken):
        return shapes
    shapes = shapes.copy()
    for i in broken:
        whole = shapely.make_valid(shapes[i], method="structure", keep_collapsed=False)
        parts = shapely.get_parts(shapely.get_parts(whole))  # twice: a collection may hold multipolygons
        parts = parts[shapely.area(parts) > NO_AREA_PX2]
        if len(parts) > 1 and shapes[i].geom_type == "MultiPolygon":
            shapes[i] = shapely.multipolygons(parts)
        else:
            shapes[i] = parts[np.argmax(shapely.area(parts))] if len(parts) else None
    gone = int(shapely.is_missing(shapes[broken]).sum())
    repairs.count("self-crossing outlines repaired", len(broken) - gone)
    repairs.count(NO_AREA, gone)
    return shapes
