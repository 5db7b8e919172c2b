"""A walk over the bytes of GeoJSON that finds whole features and takes them apart.

Features of one export differ in little but their ids, coordinates and measured numbers. The walk takes these
out and leaves a placeholder, so that features of equal remains, their *skeleton*, are parsed once.

Each write consumes a byte that no other write to the same array consumes: a closing bracket for a feature,
shape, polygon, ring or position, the byte after a number for its end, a byte of a number for the text, and a
comma or closing bracket for a placeholder. :meth:`ScannedFeatures.room` counts these bytes beforehand, so
that no content can lead a write out of its array.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled

FRAME, FIRST, NEXT = range(3)
"""Where a scan begins: at the start of the document, before its first feature, or after a feature."""
MORE, IN_FEATURES, END, TOO_DEEP, NOT_OBJECT = range(5)
"""How a scan ends: out of bytes, at the first feature, after the last one, or at an error."""

DEEPEST = 100
TOKEN_BYTES = 8
_DIGITS = 9
_PLACEHOLDER_BYTES = TOKEN_BYTES + 1 + _DIGITS + 2
_MOST_VALUES = 1 << 18
"""Most ids and measured numbers taken out in a scan; only a feature with others nested in it has more."""
_COORDINATES, _MEASUREMENTS, _FEATURES, _ID = (
    np.frombuffer(word, np.uint8) for word in (b"coordinates", b"measurements", b"features", b"id")
)
_MALFORMED, _CUT_OFF = -1, -2
_OPENED, _AFTER_VALUE, _AFTER_COMMA = range(3)
_IS_SPACE = np.isin(np.arange(256), list(b" \t\r\n"))
_ENDS_NUMBER = np.isin(np.arange(256), list(b' \t\r\n,:[]{}"'))
_BEGINS_NUMBER = np.isin(np.arange(256), list(b"-0123456789NnI"))  # also of NaN, null and Infinity


class ScannedFeatures(NamedTuple):
    """Contents of a piece of GeoJSON.

    Attributes:
        features: ``(F + 1, 5)`` for each whole feature, after a row of 0, where its id begins and ends in the
            data, and the number of bytes of skeletons, of shapes and of numbers up to its end.
        skeletons: the features with ``"<token><level><number>"`` in place of each array of coordinates, with
            the nesting of its positions (1 point, 2 points or a line, 3 polygon, 4 multipolygon, 0 without
            numbers), and in place of each measured number and of the id; numbered from 0 in each feature.
        polygons, rings, positions: number of polygons up to the end of each shape, of rings up to the end of
            each polygon, of positions up to the end of each ring; after a 0.
        begins: number that each position begins with.
        ends: where each number ends in the text; after a 0.
        text: the numbers as written, one after another.
    """

    features: NDArray[np.int64]
    skeletons: NDArray[np.uint8]
    polygons: NDArray[np.int64]
    rings: NDArray[np.int64]
    positions: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int32]
    text: NDArray[np.uint8]

    @classmethod
    def room(cls, data: bytes) -> Self:
        """Return arrays that can hold whatever stands in ``data``."""
        lists, objects, commas = _closings(np.frombuffer(data, np.uint8))
        placeholders = min(lists + objects + commas, _MOST_VALUES) + data.count(b'"coordinates"')
        room = cls(
            features=np.empty((objects + 1, 5), np.int64),
            skeletons=np.empty(len(data) + placeholders * _PLACEHOLDER_BYTES, np.uint8),
            polygons=np.empty(lists + 1, np.int64),
            rings=np.empty(lists + 1, np.int64),
            positions=np.empty(lists + 1, np.int64),
            begins=np.empty(lists, np.int64),
            ends=np.empty(len(data) // 2 + 1, np.int32),
            text=np.empty(len(data), np.uint8),
        )
        for column in (room.features, room.polygons, room.rings, room.positions, room.ends):
            column[0] = 0
        return room


def scan(data: bytes, phase: int, token: bytes) -> tuple[int, int, ScannedFeatures]:
    """Return how the scan of ``data`` ended, how many bytes it used, and the whole features in it.

    In phase FRAME the scan ends at the array of features; a document without one counts as one feature.
    """
    room = ScannedFeatures.room(data)
    end, used, features = _walk(np.frombuffer(data, np.uint8), phase, np.frombuffer(token, np.uint8), room)
    _, _, skeleton, shape, number = room.features[features]
    polygon = room.polygons[shape]
    ring = room.rings[polygon]
    position = room.positions[ring]
    found = ScannedFeatures(
        room.features[: features + 1],
        room.skeletons[:skeleton],
        room.polygons[: shape + 1],
        room.rings[: polygon + 1],
        room.positions[: ring + 1],
        room.begins[:position],
        room.ends[: number + 1],
        room.text[: room.ends[number]],
    )
    return end, used, found


@compiled
def _closings(data: Any) -> Any:
    """Count closing brackets of arrays and of objects, and commas."""
    lists, objects, commas = 0, 0, 0
    for c in data:
        lists += c == ord("]")
        objects += c == ord("}")
        commas += c == ord(",")
    return lists, objects, commas


@compiled
def _walk(data: Any, phase: int, token: Any, room: Any) -> Any:  # noqa: PLR0911, PLR0912, PLR0915  one walk
    size, depth, features, used, i = len(data), 0, 0, 0, 0
    counts = (0, 0, 0, 0, 0, 0)  # shapes, polygons, rings, positions, numbers, bytes of text
    skeleton, copied, id_start, id_stop, taken = 0, 0, 0, 0, 0
    measured = DEEPEST  # depth of the object around the measurements that the walk is in
    wants_features = False
    while i < size:
        c = data[i]
        if c == ord('"'):
            start, stop = i + 1, _closing_quote(data, i + 1)
            i = _after_spaces(data, stop + 1)
            if i >= size:
                break
            if data[i] != ord(":"):
                continue
            i = _after_spaces(data, i + 1)
            if i >= size:
                break
            if depth == 1:
                wants_features = _is_word(data, start, stop, _FEATURES)
                if _is_word(data, start, stop, _ID):
                    start, stop, after = _plain_id(data, i)
                    if stop > start and taken < _MOST_VALUES and _is_before_separator(data, after):
                        id_start, id_stop = start, stop
                        skeleton = _copied(data, copied, i, room.skeletons, skeleton)
                        skeleton = _placed(room.skeletons, skeleton, token, int(data[i] == ord('"')), 0)
                        i = copied = after
                        taken += 1
                    continue
            if measured == DEEPEST and _is_word(data, start, stop, _MEASUREMENTS):
                measured = depth
            elif _is_word(data, start, stop, _COORDINATES):
                stop, level, after_shape = _take_coordinates(data, i, counts, room)
                if stop == _CUT_OFF:
                    break
                if stop != _MALFORMED:
                    skeleton = _copied(data, copied, i, room.skeletons, skeleton)
                    nth = counts[0] - room.features[features, 3]
                    skeleton = _placed(room.skeletons, skeleton, token, level, nth)
                    i, counts = stop, after_shape
                    copied = i
                    room.polygons[counts[0]] = counts[1]
            continue
        if c == ord("[") or c == ord("{"):
            if phase == FRAME and c == ord("[") and (depth == 0 or (depth == 1 and wants_features)):
                return IN_FEATURES, i + 1, 0
            if depth == 0:
                copied = i
                if c == ord("[") or phase == NEXT:
                    return NOT_OBJECT, i, features
            depth += 1
            if depth == DEEPEST:
                return TOO_DEEP, i, features
        elif c == ord("]") or c == ord("}"):
            if depth == 0 or (depth == 1 and c == ord("]")):
                return END if depth == 0 and c == ord("]") and phase != FRAME else NOT_OBJECT, i, features
            depth -= 1
            if depth <= measured:
                measured = DEEPEST
            if depth == 0:
                skeleton = _copied(data, copied, i + 1, room.skeletons, skeleton)
                used, features = i + 1, features + 1
                room.features[features, 0], room.features[features, 1] = id_start, id_stop
                room.features[features, 2], room.features[features, 3] = skeleton, counts[0]
                room.features[features, 4] = counts[4]
                id_start = id_stop = 0
                if phase == FRAME:
                    return END, used, features
                phase = NEXT
        elif depth == 0 and phase != FRAME and not _IS_SPACE[c]:
            if c != ord(",") or phase == FIRST:
                return NOT_OBJECT, i, features
            phase = FIRST
        elif depth > measured and _BEGINS_NUMBER[c]:
            shape, polygon, ring, position, number, text = counts
            stop, text = _take_number(data, i, room.text, text)
            if taken < _MOST_VALUES and _is_before_separator(data, stop):
                skeleton = _copied(data, copied, i, room.skeletons, skeleton)
                nth = number - room.features[features, 4]
                skeleton, copied = _placed(room.skeletons, skeleton, token, 0, nth), stop
                room.ends[number + 1] = text
                counts = (shape, polygon, ring, position, number + 1, text)
                taken += 1
            i = stop
            continue
        elif depth == measured and c == ord(","):
            measured = DEEPEST  # they were no object and no array
        i += 1
    return MORE, used, features


@compiled
def _take_coordinates(data: Any, i: int, counts: Any, room: Any) -> Any:  # noqa: PLR0911, PLR0912  one grammar
    """Take nested arrays of numbers from ``data[i]`` on; all numbers must stand equally deep."""
    shape, polygon, ring, position, number, text = counts
    failed = (_MALFORMED, 0, counts)
    depth, level, first, state = 0, 0, number, _AFTER_COMMA
    while i < len(data):
        c = data[i]
        if _IS_SPACE[c]:
            i += 1
        elif c == ord(","):
            if state != _AFTER_VALUE:
                return failed
            state = _AFTER_COMMA
            i += 1
        elif c == ord("["):
            if state == _AFTER_VALUE or depth == 4 or (level > 0 and depth >= level):
                return failed
            depth, state, first = depth + 1, _OPENED, number
            i += 1
        elif c == ord("]"):
            if state == _AFTER_COMMA or (depth == level and number < first + 2):
                return failed
            if depth == level:
                room.begins[position] = first
                position += 1
            if level > 0 and (depth == level - 1 or level == 1):
                ring += 1
                room.positions[ring] = position
            if level > 0 and (depth == level - 2 or (level <= 2 and depth == 1)):
                polygon += 1
                room.rings[polygon] = ring
            depth, state = depth - 1, _AFTER_VALUE
            i += 1
            if depth == 0:
                return i, level, (shape + 1, polygon, ring, position, number, text)
        else:
            if depth == 0 or state == _AFTER_VALUE or (level > 0 and depth != level):
                return failed
            level, state = depth, _AFTER_VALUE
            i, text = _take_number(data, i, room.text, text)
            if i == len(data):
                break
            number += 1
            room.ends[number] = text
            if data[i] != ord(",") and data[i] != ord("]") and not _IS_SPACE[data[i]]:
                return failed
    return _CUT_OFF, 0, counts


@compiled
def _take_number(data: Any, i: int, text: Any, at: int) -> Any:
    while i < len(data) and not _ENDS_NUMBER[data[i]]:
        text[at] = data[i]
        at, i = at + 1, i + 1
    return i, at


@compiled
def _is_before_separator(data: Any, i: int) -> bool:
    """Return whether a value that ends at ``i`` is followed by a comma or closing bracket, as it must."""
    i = _after_spaces(data, i)
    return i < len(data) and (data[i] == ord(",") or data[i] == ord("]") or data[i] == ord("}"))


@compiled
def _plain_id(data: Any, i: int) -> Any:
    """Return start and stop of an id of plain ASCII, and where its value ends; else twice the start.

    An id without a digit is no such id: version 0.2 of QuPath wrote the type of an object as its id.
    """
    is_text = data[i] == ord('"')
    start = stop = i + is_text
    has_digit = False
    while stop < len(data) and (ord("0") <= data[stop] <= ord("9") or (is_text and data[stop] != ord('"'))):
        if data[stop] < 32 or data[stop] > 126 or data[stop] == ord("\\"):
            return start, start, stop
        has_digit |= data[stop] <= ord("9") and data[stop] >= ord("0")
        stop += 1
    ends_well = stop < len(data) and (is_text or _ENDS_NUMBER[data[stop]])
    whole = is_text or stop - start == 1 or (stop - start <= 18 and data[start] != ord("0"))
    return start, stop if has_digit and ends_well and whole else start, stop + is_text


@compiled
def _copied(data: Any, start: int, stop: int, skeletons: Any, at: int) -> int:
    """Copy a part of the data to the skeletons and return where it ends."""
    for k in range(start, stop):
        skeletons[at + k - start] = data[k]
    return at + stop - start


@compiled
def _placed(skeletons: Any, at: int, token: Any, level: int, number: int) -> int:
    """Write a placeholder and return where it ends."""
    skeletons[at] = skeletons[at + _PLACEHOLDER_BYTES - 1] = ord('"')
    for k in range(TOKEN_BYTES):
        skeletons[at + 1 + k] = token[k]
    skeletons[at + 1 + TOKEN_BYTES] = ord("0") + level
    for k in range(_DIGITS):
        skeletons[at + _PLACEHOLDER_BYTES - 2 - k] = ord("0") + number % 10
        number //= 10
    return at + _PLACEHOLDER_BYTES


@compiled
def _closing_quote(data: Any, i: int) -> int:
    """Return where the string that ``i`` stands in ends, or the end of the data."""
    while i < len(data) and data[i] != ord('"'):
        i += 2 if data[i] == ord("\\") else 1
    return min(i, len(data))


@compiled
def _after_spaces(data: Any, i: int) -> int:
    while i < len(data) and _IS_SPACE[data[i]]:
        i += 1
    return i


@compiled
def _is_word(data: Any, start: int, stop: int, word: Any) -> bool:
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110  compiled
        if data[start + k] != word[k]:
            return False
    return True
