"""A walk over the bytes of GeoJSON that takes out what differs from feature to feature.

Coordinates, measurements and ids go straight into arrays. What is left of a feature is its form::

    {"type":"Feature","id":"","geometry":{"type":"Polygon","coordinates":"@3"},"properties":{"measurements":{"Area":"@0"}}}

with a mark and a number for what was taken: of a measurement which value it is, counted from the first of the
feature, and of coordinates which shape, times ten, plus how deep its numbers stand. The mark is another for
each reading, so that no file can hold it. A million detections have a dozen forms between them, and only
these need a JSON parser and Python objects.

All that is compiled stands in this one file: numba keeps machine code by file, and would not see that a
function it had called from another one was changed.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numba import njit

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

_EXACT = 10.0 ** np.arange(23)  # those that float64 holds exactly
_LEAST, _MOST = -342, 308
_HALVES = 2.0**27 + 1  # times this, less the difference, leaves the upper half of the digits
_POWERS = [Fraction(10) ** power for power in range(_LEAST, _MOST + 1)]
# Any other power of ten as the sum of two numbers, which holds twice as many digits.
_HIGH = np.array([float(power) for power in _POWERS])
_LOW = np.array([float(power - Fraction(float(power))) for power in _POWERS])


@njit(cache=True, nogil=True)
def scan(data: Any, phase: int, room: Any, mark: Any) -> Any:  # noqa: PLR0912, PLR0915  one walk
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
            if c == ord(",") or _is_space(c):
                i += 1
                used = i
                continue
            if c != ord("{"):
                return END if c == ord("]") else NOT_OBJECT, i, out, count
            shape_0, value_0, form, id_start, id_stop = shape, value, out, 0, 0
        if depth == measuring and (_is_digit(c) or c == ord("N") or c == ord("I")):
            end, room.values[value] = read_number(data, i)
            if end > i:
                out = _write_mark(text, out, mark, value - value_0)
                i, value = end, value + 1
                continue
        text[out] = c
        out += 1
        i += 1
        if c == ord('"'):
            start = i
            while i < size and data[i] != ord('"'):
                if data[i] == ord("\\") and i + 1 < size:
                    text[out] = data[i]
                    out, i = out + 1, i + 1
                text[out] = data[i]
                out, i = out + 1, i + 1
            if i >= size:
                break
            text[out] = ord('"')
            out, stop, i = out + 1, i, i + 1
            if depth == 1:
                key_start, key_stop = start, stop
            is_id = depth == 1 and _is_word(data, start, stop, _ID)
            is_measured = _is_word(data, start, stop, _MEASUREMENTS)
            is_placed = _is_word(data, start, stop, _COORDINATES)
            if not (is_id or is_measured or is_placed):
                continue
            while i < size and (data[i] == ord(":") or _is_space(data[i])):
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
                    out = _write_mark(text, out, mark, 10 * (shape - shape_0) + level)
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
            at_features = depth == 0 or (depth == 1 and _is_word(data, key_start, key_stop, _FEATURES))
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


@njit(cache=True, nogil=True, inline="always")
def _short_number(data: Any, i: int) -> Any:
    """Read a number of up to 15 digits without a power of ten, as nearly all are; -1 for any other."""
    size = len(data)
    negative = data[i] == ord("-")
    i += negative
    first, mantissa = i, 0
    while i < size:
        digit = int(data[i]) - 48
        if digit < 0 or digit > 9:
            break
        mantissa = mantissa * 10 + digit
        i += 1
    decimals = 0
    if i < size and data[i] == ord("."):
        i += 1
        point = i
        while i < size:
            digit = int(data[i]) - 48
            if digit < 0 or digit > 9:
                break
            mantissa = mantissa * 10 + digit
            i += 1
        decimals = i - point
    if i - first > 15 or i == first or i >= size or (data[i] | 32) == ord("e"):
        return -1, 0.0
    value = mantissa / _EXACT[decimals]
    return i, -value if negative else value


@njit(cache=True, nogil=True)
def _positions(data: Any, i: int, xy: Any) -> Any:
    """Read ``x,y],[x,y],[…`` as far as the numbers are short; tell where, how many, and if all was read."""
    size, count = len(data), 0
    while True:
        j, x = _short_number(data, i)
        if j < 0 or data[j] != ord(","):
            return i, count, False
        k, y = _short_number(data, j + 1)
        if k < 0 or data[k] != ord("]"):
            return i, count, False
        xy[count, 0], xy[count, 1] = x, y
        count += 1
        i = k + 1
        if i + 1 >= size or data[i] != ord(",") or data[i + 1] != ord("["):
            return i, count, True
        i += 2


@njit(cache=True, nogil=True)
def _coordinates(data: Any, i: int, vertex: int, ring: int, polygon: int, room: Any) -> Any:  # noqa: PLR0911, PLR0912, PLR0917
    """Read nested arrays of numbers from ``data[i]`` on; how deep they stand tells a point from a polygon."""
    failed = (_MALFORMED, 0, 0, 0, 0)
    opened, after_value, after_comma = 0, 1, 2
    depth, level, numbers, state = 0, 0, 0, after_comma
    while i < len(data):
        c = data[i]
        if _is_space(c):
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
            if depth == level:  # most positions are like this: the same in fewer steps
                i, count, whole = _positions(data, i, room.xy[vertex:])
                vertex += count
                if whole:
                    depth -= 1
                    state = after_value
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


@njit(cache=True, nogil=True)
def _plain_id(data: Any, i: int) -> tuple[int, int]:
    """Return where an id stands that is a number or needs no unescaping; nothing else is taken out of a form.

    Nor is what begins with P or T: version 0.2 of QuPath wrote the type of an object here.
    """
    if data[i] == ord('"'):
        stop = _closing_quote(data, i + 1)
        plain = stop < len(data) and data[i + 1] != ord("P") and data[i + 1] != ord("T")
        for k in range(i + 1, min(stop, len(data))):
            plain &= data[k] != ord("\\")
        return i + 1, stop if plain else i + 1
    stop = i + (data[i] == ord("-"))
    while stop < len(data) and ord("0") <= data[stop] <= ord("9"):
        stop += 1
    whole = stop < len(data) and (data[stop] == ord(",") or data[stop] == ord("}") or _is_space(data[stop]))
    return i, stop if whole and stop > i else i


@njit(cache=True, nogil=True)
def read_number(data: Any, i: int) -> Any:
    """Read a number; ``NaN``, ``Infinity`` (which QuPath writes) and other words are not a number.

    Up to 18 digits are taken, more than tell one float64 from the next.

    Returns:
        Where it ends, which is ``i`` if there is none, and its value.
    """
    size, start = len(data), i
    sign = -1.0 if data[i] == ord("-") else 1.0
    i += data[i] == ord("-")
    mantissa, exponent, digits, fraction, first = 0, 0, 0, False, i
    while i < size:
        c = data[i]
        if ord("0") <= c <= ord("9"):
            if digits < 18:
                mantissa = mantissa * 10 + (int(c) - ord("0"))
                digits += mantissa > 0
                exponent -= fraction
            else:
                exponent += not fraction
        elif c == ord(".") and not fraction and i > first:
            fraction = True
        else:
            break
        i += 1
    if i == first:
        while i < size and ord("a") <= (data[i] | 32) <= ord("z"):
            i += 1
        return (i if i > first else start), np.nan
    if i < size and (data[i] == ord("e") or data[i] == ord("E")):
        i += 1
        negative = i < size and data[i] == ord("-")
        if i < size and (data[i] == ord("-") or data[i] == ord("+")):
            i += 1
        power = 0
        while i < size and ord("0") <= data[i] <= ord("9"):
            power = min(power * 10 + (int(data[i]) - ord("0")), 9999)
            i += 1
        exponent += -power if negative else power
    return i, sign * _times_power(mantissa, exponent)


@njit(cache=True, nogil=True)
def _times_power(mantissa: int, exponent: int) -> Any:
    """Return mantissa · 10^exponent, rounded as it should be but for results below 1e-280."""
    if exponent == 0 or mantissa == 0:
        return float(mantissa)
    if mantissa < 2**53 and -23 < exponent < 23:  # both exact, one rounding
        return mantissa / _EXACT[-exponent] if exponent < 0 else mantissa * _EXACT[exponent]
    if exponent < _LEAST:
        return 0.0
    if exponent > _MOST:
        return np.inf
    high, low = _HIGH[exponent - _LEAST], _LOW[exponent - _LEAST]
    top = float(mantissa)
    product = top * high
    if not 1e-280 < product < 1e290:
        return product
    # What the product rounds off (Dekker, 1971), and the lower digits of both factors.
    a, b = _HALVES * top, _HALVES * high
    a, b = a - (a - top), b - (b - high)
    rest = ((a * b - product) + a * (high - b) + (top - a) * b) + (top - a) * (high - b)
    return product + (rest + top * low + float(mantissa - np.int64(top)) * high)


@njit(cache=True, nogil=True)
def _closing_quote(data: Any, i: int) -> int:
    """Return where the string that ``i`` stands in ends, or the end of the data."""
    while i < len(data) and data[i] != ord('"'):
        i += 2 if data[i] == ord("\\") else 1
    return min(i, len(data))


@njit(cache=True, nogil=True)
def _is_space(c: int) -> Any:
    return c == 32 or c == 10 or c == 13 or c == 9  # noqa: PLR1714  a set is slow here


@njit(cache=True, nogil=True)
def _is_digit(c: int) -> Any:
    """Tell whether a number may begin with a byte."""
    return ord("0") <= c <= ord("9") or c == ord("-")


@njit(cache=True, nogil=True)
def _is_word(data: Any, start: int, stop: int, word: Any) -> bool:
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110  compiled
        if data[start + k] != word[k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _write_mark(text: Any, out: int, mark: Any, number: int) -> int:
    text[out] = ord('"')
    out += 1
    for byte in mark:
        text[out] = byte
        out += 1
    digits = 1
    while 10**digits <= number:
        digits += 1
    for k in range(digits):
        text[out + digits - 1 - k] = ord("0") + number % 10
        number //= 10
    text[out + digits] = ord('"')
    return out + digits + 1
