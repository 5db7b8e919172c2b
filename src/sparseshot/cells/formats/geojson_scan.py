"""A walk over the bytes of GeoJSON that finds whole features and takes their coordinates apart.

Each write consumes a byte that no other write to the same array consumes: a closing bracket for a feature,
shape, polygon, ring or position, the byte after a number for its end, a byte of a number for the text.
:meth:`Found.room` counts these bytes beforehand, so that no content can lead a write out of its array.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled

FRAME, FEATURES = 0, 1
"""Where a scan begins: at the start of the document, or inside its array of features."""
MORE, IN_FEATURES, END, TOO_DEEP, NOT_OBJECT = range(5)
"""How a scan ends: out of bytes, at the first feature, after the last one, or at an error."""

DEEPEST = 100
_COORDINATES = np.frombuffer(b"coordinates", np.uint8)
_FEATURES = np.frombuffer(b"features", np.uint8)
_MALFORMED, _CUT_OFF = -1, -2
_OPENED, _AFTER_VALUE, _AFTER_COMMA = range(3)
_IS_SPACE = np.isin(np.arange(256), list(b" \t\r\n"))
_ENDS_NUMBER = np.isin(np.arange(256), list(b' \t\r\n,:[]{}"'))


class Found(NamedTuple):
    """Contents of a piece of GeoJSON.

    Attributes:
        features: ``(F, 3)`` start and stop of each whole feature, and the number of shapes up to its end.
        shapes: ``(S, 2)`` start and stop of each array of coordinates.
        depths: ``(S,)`` nesting of the positions: 1 point, 2 points or a line, 3 polygon, 4 multipolygon;
            0 for an array without numbers.
        polygons, rings, positions: number of polygons up to the end of each shape, of rings up to the end of
            each polygon, of positions up to the end of each ring; after a 0.
        numbers: number of coordinates up to the end of each position; after a 0.
        ends: where each coordinate ends in the text; after a 0.
        text: the coordinates as written, one after another.
    """

    features: NDArray[np.int64]
    shapes: NDArray[np.int64]
    depths: NDArray[np.int64]
    polygons: NDArray[np.int64]
    rings: NDArray[np.int64]
    positions: NDArray[np.int64]
    numbers: NDArray[np.int64]
    ends: NDArray[np.int32]
    text: NDArray[np.uint8]

    @classmethod
    def room(cls, data: bytes) -> Self:
        """Return arrays that can hold whatever stands in ``data``."""
        lists, objects = data.count(b"]"), data.count(b"}")
        return cls(
            features=np.empty((lists + objects, 3), np.int64),
            shapes=np.empty((lists, 2), np.int64),
            depths=np.empty(lists, np.int64),
            polygons=np.zeros(lists + 1, np.int64),
            rings=np.zeros(lists + 1, np.int64),
            positions=np.zeros(lists + 1, np.int64),
            numbers=np.zeros(lists + 1, np.int64),
            ends=np.zeros(len(data) // 2 + 1, np.int32),
            text=np.empty(len(data), np.uint8),
        )


def scan(data: bytes, phase: int) -> tuple[int, int, Found]:
    """Return how the scan of ``data`` ended, how many bytes it used, and the whole features in it.

    In phase FRAME the scan ends at the array of features; a document without one counts as one feature.
    """
    room = Found.room(data)
    end, used, features, counts = _walk(np.frombuffer(data, np.uint8), phase, room)
    shape, polygon, ring, position, number, text = counts
    found = Found(
        room.features[:features],
        room.shapes[:shape],
        room.depths[:shape],
        room.polygons[: shape + 1],
        room.rings[: polygon + 1],
        room.positions[: ring + 1],
        room.numbers[: position + 1],
        room.ends[: number + 1],
        room.text[:text],
    )
    return end, used, found


@compiled
def _walk(data: Any, phase: int, room: Any) -> Any:  # noqa: PLR0911, PLR0912  one walk
    size, depth, features, used, begin, i = len(data), 0, 0, 0, 0, 0
    counts = (0, 0, 0, 0, 0, 0)  # shapes, polygons, rings, positions, coordinates, bytes of text
    whole = counts  # the same up to the end of the last whole feature
    key_start, key_stop = 0, 0
    while i < size:
        c = data[i]
        if c == ord('"'):
            start, i = i + 1, _closing_quote(data, i + 1)
            if i >= size:
                break
            if depth == 1:
                key_start, key_stop = start, i
            i += 1
            if _is_word(data, start, i - 1, _COORDINATES):
                value = i
                while value < size and (data[value] == ord(":") or _IS_SPACE[data[value]]):
                    value += 1
                if value >= size:
                    break
                stop, level, after = _take_coordinates(data, value, counts, room)
                if stop == _CUT_OFF:
                    break
                if stop != _MALFORMED:
                    shape = counts[0]
                    room.shapes[shape, 0], room.shapes[shape, 1], room.depths[shape] = value, stop, level
                    room.polygons[shape + 1] = after[1]
                    i, counts = stop, after
            continue
        if c == ord("[") or c == ord("{"):
            at_features = depth == 0 or (depth == 1 and _is_word(data, key_start, key_stop, _FEATURES))
            if phase == FRAME and c == ord("[") and at_features:
                return IN_FEATURES, i + 1, 0, whole
            if depth == 0:
                begin = i
                if c == ord("["):
                    return NOT_OBJECT, i, features, whole
            depth += 1
            if depth > DEEPEST:
                return TOO_DEEP, i, features, whole
        elif c == ord("]") or c == ord("}"):
            if depth == 0:
                return END if c == ord("]") and phase == FEATURES else NOT_OBJECT, i, features, whole
            depth -= 1
            if depth == 0:
                room.features[features, 0], room.features[features, 1] = begin, i + 1
                room.features[features, 2] = counts[0]
                used, features, whole = i + 1, features + 1, counts
                if phase == FRAME:
                    return END, used, features, whole
        elif depth == 0 and phase == FEATURES and c != ord(",") and not _IS_SPACE[c]:
            return NOT_OBJECT, i, features, whole
        i += 1
    return MORE, used, features, whole


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
                position += 1
                room.numbers[position] = number
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
            while i < len(data) and not _ENDS_NUMBER[data[i]]:
                room.text[text] = data[i]
                text, i = text + 1, i + 1
            if i == len(data):
                break
            number += 1
            room.ends[number] = text
            if data[i] != ord(",") and data[i] != ord("]") and not _IS_SPACE[data[i]]:
                return failed
    return _CUT_OFF, 0, counts


@compiled
def _closing_quote(data: Any, i: int) -> int:
    """Return where the string that ``i`` stands in ends, or the end of the data."""
    while i < len(data) and data[i] != ord('"'):
        i += 2 if data[i] == ord("\\") else 1
    return min(i, len(data))


@compiled
def _is_word(data: Any, start: int, stop: int, word: Any) -> bool:
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110  compiled
        if data[start + k] != word[k]:
            return False
    return True
