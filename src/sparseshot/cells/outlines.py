"""Valid outlines and their centroids, built from the rings of a file."""

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, centroids, joined, offsets

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
    xy, rings = _closed(source.xy, source.rings)
    ring_count = np.diff(source.polygons)
    polygon_count = np.diff(source.outlines)
    polygon_of = np.repeat(np.arange(len(ring_count)), ring_count)
    outline_of = np.repeat(np.arange(len(polygon_count)), polygon_count)
    far = np.flatnonzero(~(np.abs(xy) <= FARTHEST_PX).all(axis=1))
    far_ring = np.searchsorted(rings, far, side="right") - 1

    wanted = np.ones(len(polygon_count), bool) if wanted is None else wanted
    finite = wanted.copy()
    finite[outline_of[polygon_of[far_ring]]] = False
    good = (np.diff(rings) >= 4) & finite[outline_of[polygon_of]]
    shell = source.polygons[:-1][ring_count > 0]
    has_shell = np.zeros(len(ring_count), bool)
    has_shell[polygon_of[shell]] = good[shell]
    keep = good & has_shell[polygon_of]
    polygons = _made(xy, rings, keep, np.bincount(polygon_of[keep], minlength=len(ring_count))[has_shell])
    parts = np.bincount(outline_of[has_shell], minlength=len(polygon_count))
    repairs.count(NOT_FINITE, (wanted & ~finite).sum())
    repairs.count(NO_AREA, ((parts == 0) & finite).sum())
    shapes = repair(joined(polygons, np.repeat(np.arange(len(parts)), parts), len(parts)), repairs)
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


def _closed(
    xy: NDArray[np.float64], rings: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    length = np.diff(rings)
    some = length > 0
    is_open = np.zeros(len(length), bool)
    is_open[some] = (xy[rings[:-1][some]] != xy[rings[1:][some] - 1]).any(axis=1)
    if not is_open.any():
        return xy, rings
    closed = np.insert(xy, rings[1:][is_open], xy[rings[:-1][is_open]], axis=0)
    return closed, offsets(length + is_open)


def _made(
    xy: NDArray[np.float64], rings: NDArray[np.int64], keep: NDArray[np.bool_], ring_count: NDArray[np.intp]
) -> NDArray[np.object_]:
    """Make polygons of the rings to keep; ``ring_count`` is the number of rings of each."""
    length = np.diff(rings)
    vertices = xy if keep.all() else xy[np.repeat(keep, length)]
    made: NDArray[np.object_] = shapely.from_ragged_array(
        shapely.GeometryType.POLYGON, vertices, (offsets(length[keep]), offsets(ring_count))
    )
    return made
