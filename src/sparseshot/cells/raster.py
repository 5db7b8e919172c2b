"""Rasterisation of cells for training and pixel metrics."""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import Cells
from sparseshot.compiled import compiled
from sparseshot.errors import InputError


def rasterise(
    cells: Cells,
    shape: tuple[int, int],
    *,
    scale: float = 1.0,
    origin: tuple[float, float] = (0.0, 0.0),
    by: Literal["label", "instance"] = "label",
    radius_px: float = 3.0,
) -> NDArray[np.int32]:
    """Draw cells into an ``(H, W)`` array; 0 is background.

    A pixel belongs to a cell if its centre lies inside the outline, so that outlines from
    :func:`~sparseshot.cells.trace.trace` yield the same array again. A cell without an outline is a disc. A
    cell too small to contain a pixel centre gets the pixel below its point, so that no mark is lost. Where
    cells overlap, the later row wins.

    Args:
        cells: the table; cells outside the array are skipped.
        shape: rows and columns of the array.
        scale: pixels of the array for each level-0 pixel, e.g. 0.5 to draw 40x marks at 20x.
        origin: x and y, in level-0 pixels, of the corner of the array.
        by: ``"label"`` draws 1 + class index, ``"instance"`` 1 + row.
        radius_px: radius of the discs, in pixels of the array.

    >>> rasterise(Cells([[1.5, 0.5]]), (2, 4), radius_px=1)
    array([[1, 1, 1, 0],
           [0, 1, 0, 0]], dtype=int32)
    """
    if not 0 < scale < np.inf:
        raise InputError(f"scale is {scale}; give pixels of the array for each level-0 pixel, above 0")
    if by == "instance":
        value = np.arange(1, len(cells) + 1, dtype=np.int32)
    elif by == "label":
        if len(cells) and cells.label.min() < 0:
            raise InputError(
                f"{int((cells.label < 0).sum())} of {len(cells)} cells have no class to draw; drop them, "
                'or read them with unclassified="cell"'
            )
        value = cells.label.astype(np.int32) + np.int32(1)
    else:
        raise InputError(f'by is {by!r}; give "label" or "instance"')
    image = np.zeros(shape, np.int32)
    place = (cells.xy - origin) * scale
    rings = rings_of(cells.outline, len(cells))
    vertices = (rings.xy - origin) * scale
    if not (np.isfinite(vertices).all() and np.isfinite(place).all()):
        raise InputError("outlines have coordinates that are not finite; leave these cells out")
    _draw(image, value, place, radius_px, vertices, rings.rings, rings.polygons[rings.outlines])
    return image


@compiled
def _draw(  # noqa: PLR0917  compiled functions know no keyword-only arguments
    image: Any, value: Any, place: Any, radius: Any, xy: Any, rings: Any, cells: Any
) -> None:
    """Draw cell i with the rings ``cells[i]:cells[i + 1]``, or as a disc if it has none."""
    height, width = image.shape
    for i in range(len(value)):
        x, y = place[i]
        if cells[i] == cells[i + 1]:
            drawn = _disc(image, value[i], x, y, radius)
        else:
            drawn = _fill(image, value[i], xy, rings[cells[i] : cells[i + 1] + 1])
        if not drawn and 0 <= x < width and 0 <= y < height:
            image[int(y), int(x)] = value[i]


@compiled
def _row_range(low: float, high: float, size: int) -> tuple[int, int]:
    """Return the pixels, as a half-open range within the array, whose centres lie in [low, high)."""
    start = math.ceil(min(max(low, 0.0), float(size)) - 0.5)
    stop = math.ceil(min(max(high, 0.0), float(size)) - 0.5)
    return start, stop


@compiled
def _disc(image: Any, value: Any, x: float, y: float, radius: float) -> bool:
    height, width = image.shape
    drawn = False
    top, bottom = _row_range(y - radius, y + radius, height)
    for row in range(top, bottom + 1):
        dy = row + 0.5 - y
        if row >= height or dy * dy > radius * radius:
            continue
        half = math.sqrt(radius * radius - dy * dy)
        left, right = _row_range(x - half, x + half, width)
        if right < width and right + 0.5 <= x + half:  # the rim belongs to the disc on both sides
            right += 1
        for column in range(left, right):
            image[row, column] = value
            drawn = True
    return drawn


@compiled
def _fill(image: Any, value: Any, xy: Any, rings: Any) -> bool:
    """Fill by the even-odd rule, in time proportional to the edges and the rows that they cross."""
    height, width = image.shape
    first, last = rings[0], rings[-1]
    if first == last:
        return False
    top, bottom = _row_range(xy[first:last, 1].min(), xy[first:last, 1].max(), height)
    if bottom <= top or xy[first:last, 0].max() < 0 or xy[first:last, 0].min() > width:
        return False
    begin = np.zeros(bottom - top + 1, np.int64)
    for ring in range(len(rings) - 1):
        for k in range(rings[ring], rings[ring + 1] - 1):
            start, stop = _row_range(min(xy[k, 1], xy[k + 1, 1]), max(xy[k, 1], xy[k + 1, 1]), height)
            for row in range(start, stop):
                begin[row - top + 1] += 1
    for row in range(bottom - top):
        begin[row + 1] += begin[row]
    crossings = np.empty(begin[-1])
    free = begin[:-1].copy()
    for ring in range(len(rings) - 1):
        for k in range(rings[ring], rings[ring + 1] - 1):
            # From top to bottom, so that neighbours that share an edge agree on it exactly.
            a, b = (k, k + 1) if xy[k, 1] <= xy[k + 1, 1] else (k + 1, k)
            start, stop = _row_range(xy[a, 1], xy[b, 1], height)
            for row in range(start, stop):
                share = (row + 0.5 - xy[a, 1]) / (xy[b, 1] - xy[a, 1])
                crossings[free[row - top]] = xy[a, 0] + share * (xy[b, 0] - xy[a, 0])
                free[row - top] += 1
    drawn = False
    for row in range(bottom - top):
        span = crossings[begin[row] : begin[row + 1]]
        _sort_few(span)
        for k in range(0, len(span) - 1, 2):
            left, right = _row_range(span[k], span[k + 1], width)
            for column in range(left, right):
                image[top + row, column] = value
                drawn = True
    return drawn


@compiled
def _sort_few(values: Any) -> None:
    """Sort in place by insertion: a row crosses an outline twice, rarely more often."""
    for i in range(1, len(values)):
        value, k = values[i], i
        while k and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value


@compiled
def draw_cell(place: Any, radius: float, xy: Any, rings: Any) -> tuple[Any, int, int]:
    """Draw one cell alone into an array as large as it; return the array, and its first column and row.

    Which pixels are drawn does not depend on where the image begins.
    """
    first, last = rings[0], rings[-1]
    x, y = place
    if first == last:
        low_x, low_y, high_x, high_y = x - radius, y - radius, x + radius, y + radius
    else:
        low_x, low_y = min(x, xy[first:last, 0].min()), min(y, xy[first:last, 1].min())
        high_x, high_y = max(x, xy[first:last, 0].max()), max(y, xy[first:last, 1].max())
    left, top = math.floor(low_x), math.floor(low_y)
    patch = np.zeros((math.floor(high_y) - top + 1, math.floor(high_x) - left + 1), np.uint8)
    x, y = x - left, y - top
    if first == last:
        drawn = _disc(patch, 1, x, y, radius)
    else:
        corner = np.array([left, top], np.float64)
        drawn = _fill(patch, 1, xy[first:last] - corner, rings - first)
    if not drawn:
        patch[int(y), int(x)] = 1
    return patch, left, top
