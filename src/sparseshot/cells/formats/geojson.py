"""GeoJSON of any size, some features at a time."""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from types import NoneType
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from sparseshot.cells.rings import Rings, offsets
from sparseshot.compiled import compiled
from sparseshot.errors import FormatError

CHUNK_BYTES = 1 << 20
DEEPEST = 100
LARGEST_FEATURE_BYTES = 1 << 28
MOST_VALUES = 1 << 23
"""Most values of a feature; each becomes a Python object."""
_CUT_OFF = "the file is cut off; export or copy it again"
_FEATURES = re.compile(rb'"features"[ \t\r\n]*:[ \t\r\n]*\[')


class FeatureStream:
    """The features of a GeoJSON document: a collection, an array of features, or a single one.

    Attributes:
        frame: the document without its features, once all of them were read.
    """

    def __init__(self, file: BinaryIO, where: str, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self._where = where
        self._chunk_bytes = chunk_bytes
        self.frame: Any = None

    def __iter__(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield some features at a time, after the number of the first of them in the file, from 0."""
        frame, data = self._beginning()
        size, first, closing = self._chunk_bytes, 0, -1
        while closing < 0:
            starts, ends, closing = self._children(data, 0, f"feature {first} is")
            used = 0
            if len(ends):
                yield first, self._features(data, starts.tolist(), ends.tolist(), first)
                first, used = first + len(ends), int(ends[-1])
            if closing >= 0:
                break
            data, size = data[used:], self._chunk_bytes if used else 2 * size
            if size > LARGEST_FEATURE_BYTES:
                raise FormatError(self._where, f"feature {first} is longer than {len(data) >> 20} MB")
            if not (more := self._file.read(max(size - len(data), self._chunk_bytes))):
                raise FormatError(self._where, f"ends in the middle of feature {first}: {_CUT_OFF}")
            data += more
        if data[used:closing].strip() not in {b"", b","}:
            raise self._no_object(data[used:], first)
        try:
            self.frame = parsed(frame + data[closing:] + self._file.read(LARGEST_FEATURE_BYTES))
        except ValueError as error:
            raise FormatError(self._where, f"it is not valid JSON: {error}") from None

    def _beginning(self) -> tuple[bytes, bytes]:
        """Return the document up to its array of features, and what follows of it.

        A document without such an array is a feature itself; it is returned as the only one of an array.
        """
        data, size = b"", self._chunk_bytes
        while more := self._file.read(size):
            data = (data + more).removeprefix(b"\xef\xbb\xbf").lstrip()
            size = len(data)
            if data.startswith(b"["):
                return b"[", data[1:]
            if data and not data.startswith(b"{"):
                raise self._no_object(data, None)
            _, ends, _ = self._children(data, 0, "is")
            starts, _, _ = self._children(data[: ends[0]] if len(ends) else data, 1, "is")
            begins = [match.end() for match in _FEATURES.finditer(data)]
            if begins := np.intersect1d(begins, starts + 1).tolist():
                return data[: int(begins[0])], data[int(begins[0]) :]
            if len(ends):
                return b"[", data[: ends[0]] + b"]" + data[ends[0] :]
            if size > LARGEST_FEATURE_BYTES:
                raise FormatError(self._where, f"has no features in its first {size >> 20} MB")
        raise FormatError(self._where, f"is not whole JSON: {_CUT_OFF}" if data else "is empty")

    def _children(self, data: bytes, level: int, what: str) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return starts and ends of arrays and objects at a depth, and where what is around them ends."""
        room = data.count(b"[") + data.count(b"{")
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        begun, ended, closing, depth = _walk(np.frombuffer(data, np.uint8), level, starts, ends)
        if depth > DEEPEST:
            raise FormatError(self._where, f"{what} nested more than {DEEPEST} levels deep")
        return starts[:begun], ends[:ended], closing

    def _features(self, data: bytes, starts: list[int], ends: list[int], first: int) -> list[dict[str, Any]]:
        """Parse whole features, one by one if they cannot be parsed at once, to name the one to blame."""
        large = [stop for start, stop in zip(starts, ends, strict=False) if stop - start > MOST_VALUES]
        if not large and (not first or data[: starts[0]].strip() == b","):
            try:
                with _uncollected():
                    found = orjson.loads(b"[%b]" % data[starts[0] : ends[-1]])
                if len(found) == len(ends) and set(map(type, found)) == {dict}:
                    return found  # type: ignore[no-any-return]
            except orjson.JSONDecodeError:
                pass
        found, before = [], 0
        for number, (start, stop) in enumerate(zip(starts, ends, strict=False), first):
            text = data[start:stop]
            if data[before:start].strip() != (b"," if number else b"") or not text.startswith(b"{"):
                raise self._no_object(data[before:], number)
            if len(text) > MOST_VALUES and sum(map(text.count, (b"[", b"{", b","))) > MOST_VALUES:
                raise FormatError(self._where, f"feature {number} has more than {MOST_VALUES:,} values")
            try:
                found.append(parsed(text))
            except ValueError as error:
                raise FormatError(self._where, f"feature {number} cannot be understood: {error}") from None
            before = stop
        return found

    def _no_object(self, data: bytes, number: int | None) -> FormatError:
        came = data.lstrip(b", \t\r\n")[:20].decode(errors="replace")
        what = "is" if number is None else f"feature {number} is"
        return FormatError(self._where, f"{what} {came!r}…, not an object {{…}}")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from looking for cycles in lists as they are made, which takes most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@compiled
def _walk(data: Any, level: int, starts: Any, ends: Any) -> Any:
    """Fill in where arrays and objects at a depth start and end; stop where what is around them is closed."""
    depth, begun, ended, i = 0, 0, 0, 0
    while i < len(data):
        c = data[i]
        if c == ord('"'):
            i += 1
            while i < len(data) and data[i] != ord('"'):
                i += 2 if data[i] == ord("\\") else 1
        elif c == ord("[") or c == ord("{"):
            if depth == level:
                starts[begun] = i
                begun += 1
            depth += 1
            if depth > DEEPEST:
                return begun, ended, i, depth
        elif c == ord("]") or c == ord("}"):
            if depth == 0:
                return begun, ended, i, depth
            depth -= 1
            if depth == level:
                ends[ended] = i + 1
                ended += 1
        i += 1
    return begun, ended, -1, depth


def parsed(text: bytes) -> Any:
    """Parse JSON, including bare NaN and Infinity; raise ValueError where it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            value = json.loads(text)
            if b"\\u" in text:
                json.dumps(value, ensure_ascii=False).encode()  # raises at half a surrogate pair
            return value
        except (ValueError, RecursionError):
            raise ValueError(f"it is not valid JSON: {error}") from None


def flat(shapes: list[Any]) -> Rings:
    """Return coordinates, nested as those of multipolygons, as flat arrays; null is NaN.

    >>> flat([[[[[1, 2], [3, 4], [5, 6, 7]]]], []])
    Rings(xy=array([[1., 2.],
           [3., 4.],
           [5., 6.]]), rings=array([0, 3]), polygons=array([0, 1]), outlines=array([0, 1, 1]))

    Raises:
        TypeError: they are not nested so.
    """
    parts, ends = shapes, []
    for _ in range(3):
        ends.append(offsets(list(map(len, _lists(parts)))))
        parts = list(chain.from_iterable(parts))
    sizes = set(map(len, _lists(parts)))
    if sizes - {2}:
        if min(sizes) < 2:
            raise TypeError("a position has no x and y")
        parts = [position[:2] for position in parts]
    numbers = list(chain.from_iterable(parts))
    if not set(map(type, numbers)) <= {float, int, NoneType}:
        raise TypeError("a coordinate is no number")
    outlines, polygons, rings = ends
    return Rings(np.array(numbers, np.float64).reshape(-1, 2), rings, polygons, outlines)


def _lists(parts: list[Any]) -> list[Any]:
    if not set(map(type, parts)) <= {list}:
        raise TypeError("coordinates are nested otherwise")
    return parts
