"""GeoJSON of any size, a part at a time."""

import json
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES
from sparseshot.cells.formats.json_scan import (
    DEEPEST,
    END,
    FEATURES,
    FRAME,
    IN_FEATURES,
    MORE,
    NOT_OBJECT,
    TOO_DEEP,
    scan,
)
from sparseshot.cells.formats.json_spans import alike, spans
from sparseshot.cells.rings import Rings
from sparseshot.errors import FormatError

CHUNK_BYTES = 1 << 20
TEXT_BYTES = 10
"""At most so many bytes of form come from one: ``:1`` becomes a mark and a number of six digits."""
LARGEST_FEATURE_BYTES = 1 << 28
CUT_OFF = "the file is cut off; export or copy it again"


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
        text=np.empty(TEXT_BYTES * size + 64, np.uint8),
        features=np.empty((size // len("{},") + 2, 6), np.int64),
        xy=np.empty((size // len("[1,2]") + 2, 2)),
        rings=np.zeros(size // len("[]") + 2, np.int64),
        polygons=np.zeros(size // len("[]") + 2, np.int64),
        shapes=np.zeros(size // len('"coordinates":[]') + 2, np.int64),
        depths=np.empty(size // len('"coordinates":[]') + 2, np.uint8),
        values=np.empty(size // len(":1") + 2),
    )


class Batch(NamedTuple):
    """Some features of a file: their forms, and apart what was taken out of them.

    Attributes:
        forms: JSON, with numbers for what was taken out; see :mod:`.json_scan`.
        examples: for each form a feature that has it.
        form: ``(F,)`` number of the form of each feature.
        ids: ``(F,)`` ids; empty where a feature has none or the form still holds it.
        shapes: the coordinates of all; of a point or a line, the one ring is the list of positions.
        depths: ``(S,)`` how deep the numbers stand: 1 point, 2 several points or a line, 3 polygon,
            4 multipolygon, 0 if there are none.
        values: the measurements of all.
        first_shape: ``(F,)`` number of the first shape of each feature.
        first_value: ``(F,)`` number of the first value of each.
        first: number of the first feature in the file, from 0.
    """

    forms: list[bytes]
    examples: NDArray[np.int64]
    form: NDArray[np.int64]
    ids: NDArray[np.bytes_]
    shapes: Rings
    depths: NDArray[np.uint8]
    values: NDArray[np.float64]
    first_shape: NDArray[np.int64]
    first_value: NDArray[np.int64]
    first: int


class FeatureStream:
    """The features of a GeoJSON document: a collection, an array of features, or a single one.

    A batch is good until the next one is asked for.

    Attributes:
        mark: what stands in the forms before the number of a shape or of a value.
        frame: what stands around the features, after all of them were read: ``{"type": …, "features": []}``.
    """

    def __init__(self, file: BinaryIO, where: str, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self._where = where
        self._chunk_bytes = chunk_bytes
        self.mark = secrets.token_hex(4)
        self.frame: Any = None

    def __iter__(self) -> Iterator[Batch]:
        size = self._chunk_bytes
        room, mark = make_room(size), np.frombuffer(self.mark.encode(), np.uint8)
        phase, first = FRAME, 0
        data, frame = b"", b""
        while True:
            data += self._file.read(size - len(data))
            if phase == FRAME:
                data = data.removeprefix(b"\xef\xbb\xbf")
            if len(room.text) < TEXT_BYTES * len(data):
                room = make_room(len(data))
            end, used, length, count = scan(np.frombuffer(data, np.uint8), phase, room, mark)
            if count and phase == FEATURES:
                yield self._batch(room, count, data, first)
                first += count
            if end == END:
                break
            if end == IN_FEATURES:
                phase, frame = FEATURES, room.text[:length].tobytes()
            elif end != MORE or (not used and len(data) < size):
                raise FormatError(self._where, _problem(end, phase, first, data[used:]))
            data, size = data[used:], max(self._chunk_bytes if used else 2 * size, len(data) - used + 1)
            if size > LARGEST_FEATURE_BYTES:
                raise FormatError(self._where, f"feature {first} is longer than {len(data) >> 20} MB")
        rest = data[used:] + self._file.read(LARGEST_FEATURE_BYTES)
        self.frame = parsed((frame or room.text[:length].tobytes()) + rest, self._where, "it")
        if phase == FRAME and "features" not in self.frame:
            yield self._batch(room, count, data, first)

    def _batch(self, room: Room, count: int, data: bytes, first: int) -> Batch:
        start, end, shapes_end, values_end, id_start, id_stop = room.features[:count].T
        longest = (id_stop - id_start).max()
        if longest > LONGEST_ID_BYTES:
            raise FormatError(
                self._where, f"an id has {longest:,} bytes; at most {LONGEST_ID_BYTES} are taken"
            )
        same = alike(room.text, start, end)
        is_example = same == np.arange(count)
        examples = np.flatnonzero(is_example)
        ids = spans(np.frombuffer(data, np.uint8), id_start, id_stop)
        shapes = room.shapes[: shapes_end[-1] + 1]
        polygons = room.polygons[: shapes[-1] + 1]
        rings = room.rings[: polygons[-1] + 1]
        return Batch(
            forms=[room.text[start[k] : end[k]].tobytes() for k in examples],
            examples=examples,
            form=(np.cumsum(is_example) - 1)[same],
            ids=ids.view(f"S{ids.shape[1]}")[:, 0],
            shapes=Rings(room.xy[: rings[-1]], rings, polygons, shapes),
            depths=room.depths[: shapes_end[-1]],
            values=room.values[: values_end[-1]],
            first_shape=np.concatenate([[0], shapes_end[:-1]]),
            first_value=np.concatenate([[0], values_end[:-1]]),
            first=first,
        )


def _problem(end: int, phase: int, first: int, data: bytes) -> str:
    what = f"feature {first} is" if phase == FEATURES else "is"
    if end == TOO_DEEP:
        return f"{what} nested more than {DEEPEST} levels deep, which no export is"
    if end == NOT_OBJECT:
        return f"{what} {data[:20].decode(errors='replace')!r}…, not an object {{…}}"
    if phase == FEATURES:
        return f"ends in the middle of feature {first}: {CUT_OFF}"
    return f"is not whole JSON: {CUT_OFF}" if data.strip() else "is empty"


def parsed(text: bytes, where: str, what: str) -> Any:
    """Parse JSON, also with the bare NaN and Infinity that QuPath writes; say what is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            if any(word in text for word in (b"NaN", b"Infinity")):
                return json.loads(text)
        except (ValueError, RecursionError):
            pass  # the first error tells more
        raise FormatError(where, f"{what} is not valid JSON: {error}") from None
