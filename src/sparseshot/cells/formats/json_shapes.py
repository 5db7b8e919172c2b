"""Shapes as the coordinates of GeoJSON."""

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sparseshot.cells.rings import Rings
from sparseshot.errors import InputError

FARTHEST = 2.0**52
"""Coordinates, counted in units of the last decimal, up to which each has a text of its own."""


def coordinate_texts(shapes: Rings, depths: NDArray[Any], *, decimals: int) -> list[bytes]:
    """Return the coordinates of each shape as JSON.

    Args:
        shapes: of N shapes; a point is a ring of one vertex, several points are a ring of several.
        depths: ``(N,)`` 1 for a point, 2 for several, 3 for a polygon, 4 for a multipolygon.
        decimals: to round to; zeros at the end are not written.

    >>> one = np.array([0, 1])
    >>> coordinate_texts(Rings(np.array([[0.125, -3]]), one, one, one), np.array([1]), decimals=2)
    [b'[0.12,-3]']
    """
    farthest = FARTHEST / 10**decimals
    if len(shapes.xy) and not np.abs(shapes.xy).max() < farthest:
        raise InputError(
            f"coordinates up to {np.abs(shapes.xy).max():g} cannot be written with {decimals} decimals; "
            f"they must stay below {farthest:.0f}"
        )
    text, ends = _texts(shapes.xy, shapes.rings, shapes.polygons, shapes.outlines, depths, decimals)
    whole = text.tobytes()
    return [whole[a:b] for a, b in pairwise([0, *ends.tolist()])]


@njit(cache=True, nogil=True)
def _texts(  # noqa: PLR0917  compiled functions know no keyword-only arguments
    xy: Any, rings: Any, polygons: Any, shapes: Any, depths: Any, decimals: int
) -> Any:
    text = np.empty(48 * len(xy) + 4 * (len(rings) + len(polygons) + len(shapes)), np.uint8)
    ends = np.empty(len(shapes) - 1, np.int64)
    unit = 10**decimals
    out = 0
    for shape in range(len(shapes) - 1):
        depth = depths[shape]
        out = _put(text, out, ord("["), depth > 3)
        for polygon in range(shapes[shape], shapes[shape + 1]):
            out = _put(text, out, ord(","), polygon > shapes[shape])
            out = _put(text, out, ord("["), depth > 2)
            for ring in range(polygons[polygon], polygons[polygon + 1]):
                out = _put(text, out, ord(","), ring > polygons[polygon])
                out = _put(text, out, ord("["), depth > 1)
                for vertex in range(rings[ring], rings[ring + 1]):
                    out = _put(text, out, ord(","), vertex > rings[ring])
                    out = _put(text, out, ord("["), True)
                    out = _write_decimal(text, out, xy[vertex, 0], decimals, unit)
                    out = _put(text, out, ord(","), True)
                    out = _write_decimal(text, out, xy[vertex, 1], decimals, unit)
                    out = _put(text, out, ord("]"), True)
                out = _put(text, out, ord("]"), depth > 1)
            out = _put(text, out, ord("]"), depth > 2)
        out = _put(text, out, ord("]"), depth > 3)
        ends[shape] = out
    return text[:out], ends


@njit(cache=True, nogil=True)
def _put(text: Any, out: int, byte: int, wanted: Any) -> int:
    if wanted:
        text[out] = byte
        return out + 1
    return out


@njit(cache=True, nogil=True)
def _write_decimal(text: Any, out: int, value: float, decimals: int, unit: int) -> int:
    number = np.int64(np.rint(value * unit))
    out = _put(text, out, ord("-"), number < 0)
    number = abs(number)
    while decimals and number % 10 == 0:
        number //= 10
        decimals -= 1
    digits = decimals + 1  # a zero before the point at least
    while 10**digits <= number:
        digits += 1
    end = out + digits + (decimals > 0)
    for k in range(digits):
        place = end - 1 - k - (decimals > 0 and k >= decimals)
        text[place] = ord("0") + number % 10
        number //= 10
    if decimals:
        text[end - 1 - decimals] = ord(".")
    return end
