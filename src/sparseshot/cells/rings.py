"""Rings of outlines as flat arrays."""

from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray


class Rings(NamedTuple):
    """Rings of N outlines; each level holds where its parts begin and the last one ends.

    Attributes:
        xy: ``(V, 2)`` vertices; each ring closes by repeating its first.
        rings: ``(R + 1,)`` offsets into ``xy``.
        polygons: ``(P + 1,)`` offsets into ``rings``; first the shell, then the holes.
        outlines: ``(N + 1,)`` offsets into ``polygons``; more than one for a multipolygon, none for None.
    """

    xy: NDArray[np.float64]
    rings: NDArray[np.int64]
    polygons: NDArray[np.int64]
    outlines: NDArray[np.int64]


def rings_of(outlines: NDArray[Any] | None, count: int = 0) -> Rings:
    """Return the rings of (multi)polygons; None has no polygon, and no outlines are ``count`` times None.

    >>> square = shapely.box(0, 0, 1, 1)
    >>> rings_of(np.array([square, None, shapely.MultiPolygon([square, square])])).outlines
    array([0, 1, 1, 3])
    """
    outlines = np.full(count, None) if outlines is None else np.asarray(outlines, dtype=object)
    plain = (shapely.get_type_id(outlines) == shapely.GeometryType.POLYGON) & (
        shapely.get_num_interior_rings(outlines) == 0
    )
    if plain.all():  # the usual case, four times as fast without an object for each ring
        every = np.arange(len(outlines) + 1)
        counts = shapely.get_num_coordinates(outlines)
        return Rings(shapely.get_coordinates(outlines), offsets(counts), every, every)
    polygons, owner = shapely.get_parts(outlines, return_index=True)
    rings, polygon = shapely.get_rings(polygons, return_index=True)
    return Rings(
        xy=shapely.get_coordinates(rings),
        rings=offsets(shapely.get_num_coordinates(rings)),
        polygons=offsets(np.bincount(polygon, minlength=len(polygons))),
        outlines=offsets(np.bincount(owner, minlength=len(outlines))),
    )


def joined(polygons: NDArray[np.object_], owner: NDArray[np.integer], count: int) -> NDArray[np.object_]:
    """Return for each owner its polygon, a multipolygon if it has several, or None if it has none."""
    order = np.argsort(owner, kind="stable")
    polygons, owner = polygons[order], owner[order]
    outlines = np.full(count, None, object)
    parts = np.bincount(owner, minlength=count)
    outlines[parts == 1] = polygons[parts[owner] == 1]
    several = parts[owner] > 1
    if several.any():
        shapely.multipolygons(polygons[several], indices=owner[several], out=outlines)
    return outlines


def centroids(shapes: NDArray[np.object_]) -> NDArray[np.float64]:
    """Return the centroid of each shape; NaN for None."""
    centre = shapely.centroid(shapes)
    return np.column_stack([shapely.get_x(centre), shapely.get_y(centre)])


def offsets(counts: NDArray[Any] | list[int]) -> NDArray[np.int64]:
    """Turn counts into offsets: where each part begins, and where the last one ends.

    >>> offsets(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def expanded(counts: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each of ``sum(counts)`` parts the index of its owner, and its index within that.

    >>> expanded(np.array([2, 0, 3]))
    (array([0, 0, 2, 2, 2]), array([0, 1, 0, 1, 2]))
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - offsets(counts)[owner]
