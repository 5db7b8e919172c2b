"""Outlines of the objects in a label image, along the edges of pixels."""

from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from skimage.measure import label as connected

from sparseshot.cells.rings import joined, offsets
from sparseshot.compiled import compiled
from sparseshot.errors import InputError

_TOLERANCE_PX = 0.45
"""How far simplification moves outlines: less than half of what separates objects that do not touch."""


def trace(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.object_]]:
    """Return the value, centroid and outline of each object in a label image.

    All pixels of one value except 0 are one object. If they are connected by corners only, or not at all, its
    outline is a multipolygon. Pixel ``[row, col]`` covers the square from ``(col, row)`` to
    ``(col + 1, row + 1)``, so that :func:`~sparseshot.cells.raster.rasterise` returns the same image.

    Args:
        labels: ``(H, W)`` integers.

    Returns:
        ``(N,)`` values in ascending order, ``(N, 2)`` centroids x y, ``(N,)`` shapely (multi)polygons.

    >>> values, xy, outlines = trace(np.array([[0, 7, 7], [0, 0, 7]]))
    >>> values.tolist(), outlines[0].wkt
    ([7], 'POLYGON ((1 0, 3 0, 3 2, 2 2, 2 1, 1 1, 1 0))')
    """
    if labels.ndim != 2 or labels.dtype.kind not in "iub":
        raise InputError(
            f"a label image has shape (H, W) and whole numbers, not {labels.shape} {labels.dtype}"
        )
    # Pieces that touch by a corner are separate: a valid polygon is connected by edges.
    pieces, count = connected(labels, background=0, connectivity=1, return_num=True)  # type: ignore[no-untyped-call]
    if count == 0:
        return np.empty(0, np.int64), np.empty((0, 2)), np.empty(0, object)
    pieces = pieces.astype(np.int32, copy=False)
    of_piece = np.zeros(count + 1, labels.dtype)
    of_piece[pieces] = labels
    values, owner = np.unique(of_piece[1:], return_inverse=True)
    outlines = joined(_polygons(_follow(pieces), count), owner, len(values))
    return values.astype(np.int64), shapely.get_coordinates(shapely.centroid(outlines)), outlines


def connected_pieces(mask: NDArray[Any]) -> NDArray[np.int64]:
    """Number the connected components of a binary mask; corners connect."""
    pieces: NDArray[np.int64] = connected(mask > 0, connectivity=2)  # type: ignore[no-untyped-call]
    return pieces


class _Ways(NamedTuple):
    """Closed boundaries of the pieces of an image, with a vertex at each turn.

    Attributes:
        xy: ``(V, 2)`` vertices, one boundary after another.
        begin: ``(W + 1,)`` where each boundary begins in ``xy``, and where the last ends.
        piece: ``(W,)`` the piece it bounds, from 0.
        area: ``(W,)`` pixels inside it, negative for a hole of the piece.
    """

    xy: NDArray[Any]
    begin: NDArray[np.int64]
    piece: NDArray[np.int64]
    area: NDArray[np.float64]


def smooth_outlines(labels: NDArray[np.int32], *, hole_px: float = 0.0) -> NDArray[np.object_]:
    """Return outlines through the midpoints of pixel edges, of objects that are connected by edges.

    Midpoints are nearer to the true outline than pixel corners. Outlines are valid, at most half a pixel from
    the edges of the pixels, and do not overlap: an object that touches no other is simplified, and those that
    touch share their vertices.

    Args:
        labels: ``(H, W)`` objects numbered from 1 without gaps.
        hole_px: holes of a smaller area are filled; nothing may lie in them.

    Returns:
        ``(N,)`` polygons, in the order of the numbers.

    >>> y, x = np.mgrid[:20, :20]
    >>> disc = ((x - 9) ** 2 + (y - 9) ** 2 < 64).astype(np.int32)
    >>> [int(shapely.get_num_coordinates(each)) for each in smooth_outlines(disc)]
    [13]
    """
    count = int(labels.max(initial=0))
    if count == 0:
        return np.empty(0, object)
    ways = _through_midpoints(_follow(labels))
    outlines = _polygons(ways, count, hole_px=hole_px)
    alone = ~_touching(labels, count)
    simple = shapely.simplify(outlines[alone], _TOLERANCE_PX, preserve_topology=False)
    right = shapely.is_valid(simple) & (shapely.area(simple) > 0)
    right &= shapely.get_type_id(simple) == shapely.GeometryType.POLYGON
    outlines[alone] = np.where(right, simple, outlines[alone])
    return outlines


def _touching(labels: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
    """Return for each object whether a pixel of another is beside one of its own, or diagonal to it."""
    touching = np.zeros(count + 1, np.bool_)
    for here, there in (
        (labels[:, 1:], labels[:, :-1]),
        (labels[1:], labels[:-1]),
        (labels[1:, 1:], labels[:-1, :-1]),
        (labels[1:, :-1], labels[:-1, 1:]),
    ):
        meet = (here != there) & (here > 0) & (there > 0)
        touching[here[meet]] = touching[there[meet]] = True
    return touching[1:]


def _through_midpoints(ways: _Ways) -> _Ways:
    """Move boundaries to the midpoints of pixel edges, with a vertex at each turn."""
    start = np.delete(ways.xy, ways.begin[1:] - 1, axis=0)  # closing vertices begin no edge
    end = np.delete(ways.xy, ways.begin[:-1], axis=0)
    half = np.sign(end - start) / 2
    xy = np.stack([start + half, end - half], axis=1).reshape(-1, 2)  # the first and last midpoint of each
    way = np.repeat(np.arange(len(ways.piece)), 2 * np.diff(ways.begin) - 2)
    distinct = (xy != xy[_neighbours(way)[0]]).any(axis=1)
    way, xy = way[distinct], xy[distinct]
    before, after = _neighbours(way)
    (ax, ay), (bx, by) = (xy - xy[before]).T, (xy[after] - xy).T
    turns = ax * by != ay * bx
    way, xy = way[turns], xy[turns]
    begin = offsets(np.bincount(way))
    xy = np.insert(xy, begin[1:], xy[begin[:-1]], axis=0)
    return ways._replace(xy=xy, begin=begin + np.arange(len(begin)))


def _neighbours(way: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of the vertex before and after each one, round its way."""
    begin = offsets(np.bincount(way))
    before, after = np.arange(len(way)) - 1, np.arange(len(way)) + 1
    before[begin[:-1]], after[begin[1:] - 1] = begin[1:] - 1, begin[:-1]
    return before, after


def _follow(pieces: NDArray[np.int32]) -> _Ways:
    """Follow the boundaries of pieces, numbered from 1, whose pixels are connected by edges."""
    flat = np.pad(pieces, 1).ravel()
    row_step = pieces.shape[1] + 2
    # Large arrays are made by NumPy, which asks for huge pages; compiled code does not.
    walked, seen = np.zeros(len(flat), np.bool_), np.full(len(flat), -1, np.int32)
    corners, lengths, piece = _followed(flat, row_step, walked, seen)
    begin = offsets(lengths)
    y, x = np.divmod(corners, row_step)
    doubled = x[:-1] * y[1:] - x[1:] * y[:-1]
    doubled[begin[1:-1] - 1] = 0  # from one boundary to the next
    # Those of holes run anticlockwise on the screen.
    area = np.add.reduceat(doubled, begin[:-1]) / 2
    return _Ways(np.column_stack([x - 1, y - 1]), begin, piece, area)


def _polygons(ways: _Ways, count: int, *, hole_px: float = 0.0) -> NDArray[np.object_]:
    """Build a polygon of each piece from its shell and those of its holes that are at least so large."""
    order = np.lexsort((ways.area < 0, ways.piece))
    order = order[(ways.area[order] > 0) | (ways.area[order] <= -hole_px)]
    lengths = np.diff(ways.begin)[order]
    rings, parts = offsets(lengths), offsets(np.bincount(ways.piece[order], minlength=count))
    place = np.repeat(ways.begin[:-1][order] - rings[:-1], lengths) + np.arange(rings[-1])
    polygons: NDArray[np.object_] = shapely.from_ragged_array(
        shapely.GeometryType.POLYGON, ways.xy[place].astype(np.float64), (rings, parts)
    )
    return polygons


@compiled
def _grown(rows: Any, size: int) -> Any:
    """Return an array with room for ``size`` rows: the array itself, or a copy of twice that size."""
    if size <= len(rows):
        return rows
    larger = np.empty((2 * size,) + rows.shape[1:], rows.dtype)  # noqa: RUF005  compiled
    larger[: len(rows)] = rows
    return larger


@compiled
def _turned(flat: Any, row_step: int, corner: int, direction: int, piece: int) -> int:
    """Return where a walk round a piece goes on from a corner, with the pixels of the piece on the right.

    Where two pixels of the piece meet by the corner only, the walk stays with its pixel.

    Args:
        flat: pieces row by row, with a border of 0. A pixel also stands for its upper left corner.
        row_step: length of a row.
        corner: where the walk is.
        direction: in which it came: 0 east, 1 south, 2 west, 3 north.
        piece: its number.
    """
    right = (0, -1, -row_step - 1, -row_step)
    left = (-row_step, 0, -1, -row_step - 1)
    if flat[corner + right[direction]] != piece:
        return (direction + 1) & 3
    if flat[corner + left[direction]] == piece:
        return (direction + 3) & 3
    return direction


@compiled
def _followed(flat: Any, row_step: int, walked: Any, seen: Any) -> Any:
    """Walk round every piece with its pixels on the right; return closed rings, a vertex at each turn.

    Where two pixels of a piece meet by a corner only, the walk may pass that corner twice. The part between
    is cut out as a ring of its own, so that no ring touches itself.

    Args:
        flat: the pieces, numbered from 1, as in :func:`_turned`.
        row_step: length of a row.
        walked: False for each pixel: whether its upper edge was walked, eastwards.
        seen: −1 for each corner: where it is in the present way.

    Returns:
        The corners of all rings, the length of each ring, and its piece.
    """
    steps = (1, row_step, -1, -row_step)
    rings, way = np.empty(1024, np.int64), np.empty(64, np.int64)
    lengths, owners = np.empty(64, np.int64), np.empty(64, np.int64)
    used, count = 0, 0
    for first in range(row_step, len(flat)):
        piece = flat[first]
        if piece == 0 or walked[first] or flat[first - row_step] == piece:
            continue
        # The leftmost of its run, so the way turns here and this corner is a vertex.
        place, direction, length = first, 0, 1
        way[0], seen[first] = first, 0
        while direction != 0 or not walked[place]:
            if direction == 0:
                walked[place] = True
            place += steps[direction]
            ahead, direction = direction, _turned(flat, row_step, place, direction, piece)
            if direction == ahead:
                continue
            before = seen[place]
            if before < 0:
                way = _grown(way, length + 1)
                way[length], seen[place] = place, length
                length += 1
                continue
            size = length - before
            rings = _grown(rings, used + size + 1)
            lengths, owners = _grown(lengths, count + 1), _grown(owners, count + 1)
            rings[used : used + size] = way[before:length]
            rings[used + size] = way[before]
            for corner in way[before + 1 : length]:
                seen[corner] = -1
            lengths[count], owners[count] = size + 1, piece - 1
            used, count, length = used + size + 1, count + 1, before + 1
        seen[first] = -1
    return rings[:used], lengths[:count], owners[:count]
