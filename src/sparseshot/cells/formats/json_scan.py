"""A walk over the bytes of GeoJSON that takes out what differs from feature to feature.

Coordinates, measurements and ids go straight into arrays. What is left of a feature is its form::

    {"type":"Feature","id":"","geometry":{"type":"Polygon","coordinates":0},"properties":{"measurements":{"Area":0}}}

with numbers in the place of what was taken: the first shape, the first value. A million detections have a
dozen forms between them, and only these need a JSON parser and Python objects.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sparseshot.cells.formats.json_bytes import (
    closing_quote,
    is_digit,
    is_space,
    is_word,
    read_number,
    write_number,
)

FRAME, FEATURES = 0, 1
"""Where a scan begins: at the start of the document, or among the elements of its array of features."""
MORE, IN_FEATURES, END, TOO_DEEP, NOT_OBJECT = range(5)
"""How a scan ends: out of bytes; at the first feature; after the last; at an error."""

DEEPEST = 100
_COORDINATES = np.frombuffer(b"coordinates", np.uint8)
_FEATURES = np.frombuffer(b"features", np.uint8)
_ID = np.frombuffer(b"id", np.uint8)
_MEASUREMENTS = np.frombuffer(b"measurements", np.uint8)
_MALFORMED, _CUT_OFF = -1, -2


class Room(NamedTuple):
    """Arrays for what a scan can find, made once and used again.

    Attributes:
        text: the forms.
        features: a row for each feature: start and end of its form, shapes and values up to its end, start
            and end of its id in the data.
        xy, rings, polygons, shapes: the coordinates, as in :class:`~sparseshot.cells.rings.Rings`.
        depths: how deep the numbers of a shape stand: 1 point, 3 polygon; 0 without any.
        values: the measurements.
    """

    text: NDArray[np.uint8]
    features: NDArray[np.int64]
    xy: NDArray[np.float64]
    rings: NDArray[np.int64]
    polygons: NDArray[np.int64]
    shapes: NDArray[np.int64]
    depths: NDArray[np.uint8]
    values: NDArray[np.float64]


def make_room(size: int) -> Room:
    """Make room for a scan of ``size`` bytes: for as many of each as so many bytes can hold."""
    return Room(
        text=np.empty(2 * size + 64, np.uint8),
        features=np.empty((size // len("{},") + 2, 6), np.int64),
        xy=np.empty((size // len("[1,2]") + 2, 2)),
        rings=np.zeros(size // len("[]") + 2, np.int64),
        polygons=np.zeros(size // len("[]") + 2, np.int64),
        shapes=np.zeros(size // len('"coordinates":[]') + 2, np.int64),
        depths=np.empty(size // len('"coordinates":[]') + 2, np.uint8),
        values=np.empty(size // len(":1") + 2),
    )


@njit(cache=True)
def scan(data: Any, phase: int, room: Room) -> Any:  # noqa: PLR0912, PLR0915  one walk
    """Walk over ``data`` and fill ``room`` with the whole features in it.

    Returns:
        How it ended, bytes consumed, bytes of text, features. In phase FRAME the text is what stands before
        the array of features; if there is no such array, all is taken for one feature.
    """
    size, text = len(data), room.text
    i, out, depth, count, used = 0, 0, 0, 0, 0
    vertex, ring, polygon, shape, value = 0, 0, 0, 0, 0
    shape_0, value_0, form, id_start, id_stop = 0, 0, 0, 0, 0  # of the present feature
    key_start, key_stop, around, measuring = 0, 0, -1, -1
    while i < size:
        c = data[i]
        if depth == 0 and phase == FEATURES:
            if c == ord(",") or is_space(c):
                i += 1
                continue
            if c != ord("{"):
                return END if c == ord("]") else NOT_OBJECT, i, out, count
            shape_0, value_0, form, id_start, id_stop = shape, value, out, 0, 0
        if depth == measuring and (is_digit(c) or c == ord("N") or c == ord("I")):
            i, room.values[value] = read_number(data, i)
            out = write_number(text, out, value - value_0)
            value += 1
            continue
        text[out] = c
        out += 1
        i += 1
        if c == ord('"'):
            start, stop = i, closing_quote(data, i)
            if stop >= size:
                break
            for k in range(start, stop + 1):
                text[out] = data[k]
                out += 1
            i = stop + 1
            if depth == 1:
                key_start, key_stop = start, stop
            is_id = depth == 1 and is_word(data, start, stop, _ID)
            is_measured = is_word(data, start, stop, _MEASUREMENTS)
            is_placed = is_word(data, start, stop, _COORDINATES)
            if not (is_id or is_measured or is_placed):
                continue
            while i < size and (data[i] == ord(":") or is_space(data[i])):
                text[out] = data[i]
                out += 1
                i += 1
            if i >= size:
                break
            if is_placed and data[i] == ord("["):
                end, v, r, p, level = _coordinates(data, i, vertex, ring, polygon, room)
                if end == _CUT_OFF:
                    break
                if end != _MALFORMED:
                    i, vertex, ring, polygon = end, v, r, p
                    out = write_number(text, out, shape - shape_0)
                    shape += 1
                    room.shapes[shape], room.depths[shape - 1] = polygon, level
            elif is_measured and (data[i] == ord("{") or data[i] == ord("[")):
                around = depth
                measuring = depth + (1 if data[i] == ord("{") else 2)  # a list holds objects with the values
            elif is_id:
                start, stop = _plain_id(data, i)
                if stop > start:
                    id_start, id_stop = start, stop
                    i = stop + (data[i] == ord('"'))
                    for c in b'""' if start != stop and data[start - 1] == ord('"') else b"0":
                        text[out] = c
                        out += 1
        elif c == ord("[") or c == ord("{"):
            at_features = depth == 0 or (depth == 1 and is_word(data, key_start, key_stop, _FEATURES))
            if phase == FRAME and c == ord("[") and at_features:
                return IN_FEATURES, i, out, 0
            depth += 1
            if depth > DEEPEST:
                return TOO_DEEP, i, out, count
        elif c == ord("]") or c == ord("}"):
            depth -= 1
            if depth == around:
                measuring = -1
            if depth <= 0:
                row = room.features[count]
                row[0], row[1], row[2], row[3], row[4], row[5] = form, out, shape, value, id_start, id_stop
                count += 1
                used = i
                if phase == FRAME:
                    return END, used, out, count
    return MORE, used, out, count


@njit(cache=True)
def _coordinates(data: Any, i: int, vertex: int, ring: int, polygon: int, room: Room) -> Any:  # noqa: PLR0911, PLR0912, PLR0917
    """Read nested arrays of numbers from ``data[i]`` on; how deep they stand tells a point from a polygon."""
    failed = (_MALFORMED, 0, 0, 0, 0)
    opened, after_value, after_comma = 0, 1, 2
    depth, level, numbers, state = 0, 0, 0, after_comma
    while i < len(data):
        c = data[i]
        if is_space(c):
            i += 1
        elif c == ord(","):
            if state != after_value:
                return failed
            state = after_comma
            i += 1
        elif c == ord("["):
            depth += 1
            if state == after_value or depth > 4 or (level and depth > level):
                return failed
            state, numbers = opened, 0
            i += 1
        elif c == ord("]"):
            if state == after_comma or (depth == level and numbers < 2):
                return failed
            if depth == level:
                vertex += 1
            if level and (depth == level - 1 or level == 1):
                ring += 1
                room.rings[ring] = vertex
            if level and (depth == level - 2 or (level <= 2 and depth == 1)):
                polygon += 1
                room.polygons[polygon] = ring
            depth -= 1
            state = after_value
            i += 1
            if depth == 0:
                return i, vertex, ring, polygon, level
        else:
            if state == after_value or (level and depth != level):
                return failed
            level, state = depth, after_value
            start = i
            i, value = read_number(data, i)
            if i == start:
                return failed
            if numbers < 2:
                room.xy[vertex, numbers] = value
            numbers += 1
    return _CUT_OFF, 0, 0, 0, 0


@njit(cache=True)
def _plain_id(data: Any, i: int) -> tuple[int, int]:
    """Give where an id stands that is a number or needs no unescaping; nothing else is taken out of a form.

    Nor is what begins with P or T: version 0.2 of QuPath wrote the type of an object here.
    """
    if data[i] == ord('"'):
        stop = closing_quote(data, i + 1)
        plain = stop < len(data) and data[i + 1] != ord("P") and data[i + 1] != ord("T")
        for k in range(i + 1, min(stop, len(data))):
            plain &= data[k] != ord("\\")
        return i + 1, stop if plain else i + 1
    stop = i + (data[i] == ord("-"))
    while stop < len(data) and ord("0") <= data[stop] <= ord("9"):
        stop += 1
    whole = stop < len(data) and (data[stop] == ord(",") or data[stop] == ord("}") or is_space(data[stop]))
    return i, stop if whole and stop > i else i


@njit(cache=True)
def spans(data: Any, start: Any, stop: Any) -> Any:
    """Copy spans of the data into the rows of an array, filled up with zeros."""
    width = max((stop - start).max(), 1)
    rows = np.zeros((len(start), width), np.uint8)
    for row in range(len(start)):
        rows[row, : stop[row] - start[row]] = data[start[row] : stop[row]]
    return rows
