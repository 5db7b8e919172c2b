"""GeoJSON of any size, some features at a time."""

import json
import secrets
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from sparseshot.cells.formats.geojson_scan import (
    DEEPEST,
    END,
    FIRST,
    FRAME,
    IN_FEATURES,
    MORE,
    NEXT,
    NOT_OBJECT,
    TOKEN_BYTES,
    TOO_DEEP,
    ScannedFeatures,
    scan,
)
from sparseshot.cells.rings import Rings
from sparseshot.errors import FormatError

CHUNK_BYTES = 1 << 19
LARGEST_FEATURE_BYTES = 1 << 28
CUT_OFF = "the file is cut off; export or copy it again"


class Batch(NamedTuple):
    """Some features of a file.

    Attributes:
        data: the bytes that ``found`` refers to.
        found: their contents.
        first: number of the first feature in the file, from 0.
    """

    data: bytes
    found: ScannedFeatures
    first: int

    def skeletons(self) -> list[bytes]:
        """Return the skeleton of each feature."""
        text, ends = self.found.skeletons.tobytes(), self.found.features[:, 2].tolist()
        return [text[start:stop] for start, stop in pairwise(ends)]

    def ids(self) -> list[bytes]:
        """Return the id that was taken out of each feature, empty where there is none."""
        starts, stops = self.found.features[1:, :2].T.tolist()
        return [self.data[start:stop] for start, stop in zip(starts, stops, strict=True)]

    def numbers(self, where: str) -> NDArray[np.float64]:
        """Parse the numbers; null is NaN."""
        ends = self.found.ends
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self.found.text)]
        texts = pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)
        try:
            return texts.cast(pa.float64()).to_numpy()  # type: ignore[no-any-return]
        except pa.ArrowInvalid:
            values = np.empty(len(texts))
        for number, text in enumerate(texts.cast(pa.binary()).to_pylist()):
            try:
                values[number] = float("nan" if text == b"null" else text)
            except ValueError as error:
                feature = self.first + np.searchsorted(self.found.features[1:, 4], number, "right")
                raise FormatError(where, f"feature {feature} is not valid JSON: {error}") from None
        return values

    def shapes(self, numbers: NDArray[np.float64]) -> Rings:
        """Return the shapes with x and y of each position; a point or line is one ring of its positions."""
        xy = np.column_stack([numbers[self.found.begins], numbers[self.found.begins + 1]])
        return Rings(xy, self.found.positions, self.found.rings, self.found.polygons)


class FeatureStream:
    """The features of a GeoJSON document: a collection, an array of features, or a single one.

    Attributes:
        token: beginning of each placeholder; random, so that no file can contain one.
        frame: the document without its features, once all of them were read.
    """

    def __init__(self, file: BinaryIO, where: str, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self._where = where
        self._chunk_bytes = chunk_bytes
        self.token = secrets.token_hex(TOKEN_BYTES // 2)
        self.frame: Any = None

    def __iter__(self) -> Iterator[Batch]:
        size, phase, first, data, frame = self._chunk_bytes, FRAME, 0, b"", b""
        while True:
            data += self._file.read(size - len(data))
            if phase == FRAME:
                data = data.removeprefix(b"\xef\xbb\xbf")
            end, used, found = scan(data, phase, self.token.encode())
            features = len(found.features) - 1
            if features:
                yield Batch(data, found, first)
                first += features
            if end == END:
                break
            if end == IN_FEATURES:
                phase, frame = FIRST, data[:used]
            elif end != MORE or (not used and len(data) < size):
                raise FormatError(self._where, _problem(end, phase, first, data[used:]))
            elif features:
                phase = NEXT
            data, size = data[used:], max(self._chunk_bytes if used else 2 * size, len(data) - used + 1)
            if size > LARGEST_FEATURE_BYTES:
                raise FormatError(self._where, f"feature {first} is longer than {len(data) >> 20} MB")
        rest = data[used:] + self._file.read(LARGEST_FEATURE_BYTES)
        try:
            self.frame = parsed((b"{}" if phase == FRAME else frame) + rest)
        except ValueError as error:
            raise FormatError(self._where, f"it is not valid JSON: {error}") from None


def _problem(end: int, phase: int, first: int, data: bytes) -> str:
    what = "is" if phase == FRAME else f"feature {first} is"
    if end == TOO_DEEP:
        return f"{what} nested more than {DEEPEST} levels deep"
    if end == NOT_OBJECT:
        return f"{what} {data[:20].decode(errors='replace')!r}…, not an object {{…}}"
    if phase != FRAME:
        return f"ends in the middle of feature {first}: {CUT_OFF}"
    return f"is not whole JSON: {CUT_OFF}" if data.strip() else "is empty"


def parsed(text: bytes) -> Any:
    """Parse JSON, including bare NaN and Infinity; raise ValueError where it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()  # raises at half a surrogate pair
            return value
        except (ValueError, RecursionError):
            raise ValueError(f"it is not valid JSON: {error}") from None
