"""A table of cells as GeoJSON that QuPath reads."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.json_shapes import coordinate_texts
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.formats.qupath import MEMBER, SCORE
from sparseshot.cells.rings import Rings, offsets, rings_of
from sparseshot.cells.table import KINDS, Cells

BATCH_ROWS = 20_000
_TYPES = (b"", b"Point", b"MultiPoint", b"Polygon", b"MultiPolygon")


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write a collection of features; the score becomes a measurement, exhaustive regions annotations."""
    classes = [_classification(cells, label) for label in range(len(cells.classes))]
    member = orjson.dumps({"mpp": cells.mpp, "classes": classes})  # what features cannot tell
    file.write(b'{"type":"FeatureCollection","%b":%b,"features":[\n' % (MEMBER.encode(), member))
    regions = Cells(
        np.zeros((len(cells.regions), 2)),
        classes=(options.exhaustive_class,),
        outline=cells.regions,
        kind=np.full(len(cells.regions), KINDS.index("annotation")),
    )
    separator = b""
    for table in (cells, regions):
        for part, multipoint in _parts(table):
            file.write(separator + _features(part, multipoint, options.decimals))
            separator = b",\n"
    file.write(b"\n]}\n")


def _classification(cells: Cells, label: int) -> dict[str, Any]:
    color = {} if cells.colors is None else {"color": cells.colors[label]}
    return {"name": cells.classes[label]} | color


def _parts(cells: Cells) -> Iterator[tuple[Cells, NDArray[np.bytes_] | None]]:
    """Return the table in parts, with the id of the multipoint that each row was read from, if any was.

    Such rows have its id with ``#`` and a number; a multipoint is never torn between two parts.
    """
    multipoint = None
    if cells.id is not None and cells.id.dtype.kind == "S" and b"#" in cells.id.tobytes():
        multipoint = np.array([_multipoint(name) for name in cells.id.tolist()])
        if cells.outline is not None:
            multipoint[~shapely.is_missing(cells.outline)] = b""
    start = 0
    while start < len(cells):
        stop = min(start + BATCH_ROWS, len(cells))
        while multipoint is not None and stop < len(cells) and _joined(multipoint[stop - 1 : stop + 1])[0]:
            stop += 1
        yield cells[start:stop], None if multipoint is None else multipoint[start:stop]
        start = stop


def _multipoint(name: bytes) -> bytes:
    group, _, number = name.rpartition(b"#")
    return group if number.isdigit() else b""


def _joined(multipoint: NDArray[np.bytes_]) -> NDArray[np.bool_]:
    """Tell of each row but the first whether it is of the same multipoint as the one before."""
    same: NDArray[np.bool_] = (multipoint[1:] == multipoint[:-1]) & (multipoint[1:] != b"")
    return same


def _features(cells: Cells, multipoint: NDArray[np.bytes_] | None, decimals: int) -> bytes:
    begins, depth, ids = np.ones(len(cells), bool), np.ones(len(cells), np.int64), cells.id
    if multipoint is not None and ids is not None:
        begins[1:] = ~_joined(multipoint)
        depth[multipoint != b""] = 2
        ids = np.where(multipoint != b"", multipoint, ids)
    outlined = np.zeros(len(cells), bool)
    coordinates = np.empty(len(cells), object)
    if cells.outline is not None:
        outlined = ~shapely.is_missing(cells.outline)
        depth[outlined] = 3 + (shapely.get_num_geometries(cells.outline[outlined]) > 1)
        coordinates[outlined] = _polygons(cells.outline[outlined], decimals)
    rows = np.flatnonzero(begins)
    of_points = rows[~outlined[rows]]
    length = np.diff([*rows, len(cells)])[~outlined[rows]]
    each = np.arange(len(of_points) + 1)
    points = Rings(cells.xy[~outlined], offsets(length), each, each)
    coordinates[of_points] = coordinate_texts(points, depth[of_points], decimals=decimals)

    pieces: list[Sequence[bytes]] = [
        [b'{"type":"Feature"'] * len(rows),
        [b""] * len(rows) if ids is None else _id_texts(ids[rows]),
        [b',"geometry":{"type":"%b","coordinates":' % _TYPES[each] for each in depth[rows]],
        coordinates[rows].tolist(),
        _nuclei(cells, rows, decimals),
        _properties(cells, rows),
        _measurements(cells, rows),
        [b"}},\n"] * len(rows),
    ]
    woven: list[bytes] = [b""] * (len(pieces) * len(rows))
    for k, piece in enumerate(pieces):
        woven[k :: len(pieces)] = piece
    return b"".join(woven)[: -len(b",\n")]


def _polygons(shapes: NDArray[Any], decimals: int) -> list[bytes]:
    depths = 3 + (shapely.get_num_geometries(shapes) > 1)
    return coordinate_texts(rings_of(shapes), depths, decimals=decimals)


def _id_texts(ids: NDArray[Any]) -> list[bytes]:
    if ids.dtype.kind == "i":
        return [b',"id":%b' % text for text in _number_texts(ids)]
    return [b',"id":%b' % orjson.dumps(name.decode()) for name in ids.tolist()]


def _number_texts(column: NDArray[Any]) -> list[bytes]:
    """Return the shortest text that reads back as the same number; of NaN, ``null``."""
    text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
    return text[1:-1].split(b",")


def _nuclei(cells: Cells, rows: NDArray[np.intp], decimals: int) -> list[bytes]:
    texts = np.full(len(rows), b"}", object)
    if cells.nucleus is not None:
        some = ~shapely.is_missing(cells.nucleus[rows])
        shapes = cells.nucleus[rows][some]
        depths = 3 + (shapely.get_num_geometries(shapes) > 1)
        texts[some] = [
            b'},"nucleusGeometry":{"type":"%b","coordinates":%b}' % (_TYPES[depth], text)
            for depth, text in zip(depths, _polygons(shapes, decimals), strict=True)
        ]
    return list(texts)


def _properties(cells: Cells, rows: NDArray[np.intp]) -> list[bytes]:
    """Return the properties of each, without their end; there are few, so that each is made once."""
    if cells.kind is None:
        kinds = np.full(len(rows), KINDS.index("annotation" if cells.score is None else "detection"))
    else:
        kinds = cells.kind[rows]
    made: dict[tuple[int, int], bytes] = {}
    for kind, label in set(zip(kinds.tolist(), cells.label[rows].tolist(), strict=True)):
        classified = {} if label < 0 else {"classification": _classification(cells, label)}
        made[kind, label] = b',"properties":' + orjson.dumps({"objectType": KINDS[kind]} | classified)[:-1]
    return [made[key] for key in zip(kinds.tolist(), cells.label[rows].tolist(), strict=True)]


def _measurements(cells: Cells, rows: NDArray[np.intp]) -> list[bytes]:
    columns: dict[str, NDArray[Any]] = dict(cells.measurements)
    if cells.score is not None:
        columns[SCORE] = cells.score
    if not columns:
        return [b""] * len(rows)
    named = []
    for name, column in columns.items():
        key = orjson.dumps(name) + b":"
        named.append([key + text if text != b"null" else b"" for text in _number_texts(column[rows])])
    if len(named) == 1:
        return [b',"measurements":{%b}' % text for text in named[0]]
    return [b',"measurements":{%b}' % b",".join(filter(None, row)) for row in zip(*named, strict=True)]
