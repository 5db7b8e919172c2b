"""GeoJSON of any size, some features at a time."""

import json
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sparseshot.cells.formats.geojson_scan import (
    DEEPEST,
    END,
    FEATURES,
    FRAME,
    IN_FEATURES,
    MORE,
    NOT_OBJECT,
    TOO_DEEP,
    Found,
    scan,
)
from sparseshot.cells.rings import Rings
from sparseshot.errors import FormatError

CHUNK_BYTES = 1 << 19
LARGEST_FEATURE_BYTES = 1 << 28
MOST_VALUES = 1 << 23
"""Most values of a batch beside its coordinates; each becomes a Python object."""
CUT_OFF = "the file is cut off; export or copy it again"


class Batch(NamedTuple):
    """Some features of a file, with their coordinates apart from the rest.

    Attributes:
        data: the bytes that ``found`` refers to.
        found: the features and shapes in them.
        first: number of the first feature in the file, from 0.
    """

    data: bytes
    found: Found
    first: int

    def single(self, number: int) -> "Batch":
        """Return a batch of one feature."""
        start, stop, _ = self.found.features[number]
        data = self.data[start:stop]
        return Batch(data, scan(data, FEATURES)[2], self.first + number)

    def objects(self, marks: "Marks") -> list[Any]:
        """Parse the features, with a mark in place of each array of coordinates."""
        start, stop = self.found.shapes.T.tolist()
        begin, end = int(self.found.features[0, 0]), int(self.found.features[-1, 1])
        pieces = [b""] * (2 * len(start) + 1)
        pieces[::2] = [self.data[i:j] for i, j in zip([begin, *stop], [*start, end], strict=True)]
        pieces[1::2] = marks.texts(len(start))
        text = b"[%b]" % b"".join(pieces)
        if len(text) > MOST_VALUES and sum(text.count(each) for each in (b"[", b"{", b",")) > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        objects: list[Any] = parsed(text)
        return objects

    def shapes(self) -> Rings:
        """Parse the coordinates; positions keep x and y, of a point or line the one ring is its positions."""
        ends, numbers = self.found.ends, self.found.numbers
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self.found.text)]
        texts = pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)
        try:
            values = texts.cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:  # QuPath writes no null, others do
            values = pc.replace_substring(texts, "null", "NaN").cast(pa.float64()).to_numpy()
        xy = np.column_stack([values[numbers[:-1]], values[numbers[:-1] + 1]])
        return Rings(xy, self.found.positions, self.found.rings, self.found.polygons)


class Marks:
    """Strings that stand for shapes; a new series for each file, so that no file can contain one."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4)
        self._texts: list[bytes] = []
        self.number: dict[Any, int] = {}

    def texts(self, count: int) -> list[bytes]:
        """Return the first marks as JSON."""
        for number in range(len(self._texts), count):
            mark = f"{self._prefix}{number}"
            self._texts.append(b'"%b"' % mark.encode())
            self.number[mark] = number
        return self._texts[:count]


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

    def __iter__(self) -> Iterator[Batch]:
        size, phase, first, data, frame = self._chunk_bytes, FRAME, 0, b"", b""
        while True:
            data += self._file.read(size - len(data))
            if phase == FRAME:
                data = data.removeprefix(b"\xef\xbb\xbf")
            end, used, found = scan(data, phase)
            if len(found.features):
                yield Batch(data, found, first)
                first += len(found.features)
            if end == END:
                break
            if end == IN_FEATURES:
                phase, frame = FEATURES, data[:used]
            elif end != MORE or (not used and len(data) < size):
                raise FormatError(self._where, _problem(end, phase, first, data[used:]))
            data, size = data[used:], max(self._chunk_bytes if used else 2 * size, len(data) - used + 1)
            if size > LARGEST_FEATURE_BYTES:
                raise FormatError(self._where, f"feature {first} is longer than {len(data) >> 20} MB")
        rest = data[used:] + self._file.read(LARGEST_FEATURE_BYTES)
        try:
            self.frame = parsed((frame if phase == FEATURES else b"{}") + rest)
        except ValueError as error:
            raise FormatError(self._where, f"it is not valid JSON: {error}") from None


def _problem(end: int, phase: int, first: int, data: bytes) -> str:
    what = f"feature {first} is" if phase == FEATURES else "is"
    if end == TOO_DEEP:
        return f"{what} nested more than {DEEPEST} levels deep"
    if end == NOT_OBJECT:
        return f"{what} {data[:20].decode(errors='replace')!r}…, not an object {{…}}"
    if phase == FEATURES:
        return f"ends in the middle of feature {first}: {CUT_OFF}"
    return f"is not whole JSON: {CUT_OFF}" if data.strip() else "is empty"


def parsed(text: bytes) -> Any:
    """Parse JSON, including bare NaN and Infinity; raise ValueError where it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"it is not valid JSON: {error}") from None
