"""GeoParquet, the native format, as a table."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES, filled_ids
from sparseshot.cells.formats.options import ReadOptions, Source
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, Outlines, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import KINDS, Cells
from sparseshot.errors import FormatError, InputError

KEY = b"sparseshot"
"""The metadata that holds what columns cannot."""
ROWS = 1 << 18
MOST_ROWS = 1 << 29
OWN_COLUMNS = ("geometry", "x", "y", "class", "score", "id", "kind", "nucleus")


def read(source: Source, options: ReadOptions) -> Cells:
    """Read our own files in full; of others geometry, class, score, id, and columns of numbers."""
    try:
        file = pq.ParquetFile(source.file)
        rows = file.metadata.num_rows
        if rows > MOST_ROWS:
            raise FormatError(source.name, f"has {rows:,} rows; at most {MOST_ROWS:,} are read")
        layout = _layout(file.schema_arrow, source.name)
        tables = [
            _cells(batch, layout, source.name, options.repairs)
            for batch in file.iter_batches(ROWS, columns=layout.columns, use_threads=False)
        ]
    except (pa.ArrowException, KeyError, OSError, TypeError, ValueError) as error:  # as pyarrow comes upon it
        raise FormatError(source.name, f"is not readable GeoParquet: {error}") from None
    cells = Cells.concatenate(tables or [Cells([], classes=layout.classes)])
    try:
        return replace(
            cells,
            id=None if cells.id is None else filled_ids(cells.id, options.repairs),
            mpp=layout.own.get("mpp"),
            colors=layout.own.get("colors") and tuple(map(tuple, layout.own["colors"])),
            regions=shapely.from_wkb(np.array(layout.own.get("regions", []), object)),
        )
    except (TypeError, ValueError, InputError, shapely.GEOSException) as error:
        raise FormatError(
            source.name, f"its metadata {KEY.decode()!r} cannot be understood: {error}"
        ) from None


class _Layout(NamedTuple):
    """Where things stand in a file."""

    columns: list[str]
    geometry: str | None
    classes: tuple[str, ...]
    measurements: dict[str, str]
    own: dict[str, Any]


def _layout(schema: pa.Schema, where: str) -> _Layout:
    metadata = schema.metadata or {}
    has_places = {"x", "y"} <= set(schema.names)
    try:
        own = orjson.loads(metadata[KEY]) if KEY in metadata else {}
        geo = orjson.loads(metadata[b"geo"]) if b"geo" in metadata else {}
        geometry = geo.get("primary_column")
        if geometry is None and not has_places:
            raise FormatError(where, "has no geometry after the GeoParquet standard, nor columns x and y")
        if geometry is not None and geo["columns"][geometry]["encoding"] != "WKB":
            raise FormatError(
                where, f"its geometry is {geo['columns'][geometry]['encoding']}; only WKB is read"
            )
        if own and has_places and not own["outlines"]:
            geometry = None  # the points stand in x and y
        classes = tuple(str(name) for name in own.get("classes", ()))
        measurements = dict(own["measurements"]) if own else _numbers(schema)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(where, f"its metadata cannot be understood: {error!r}") from None
    wanted = [geometry, *OWN_COLUMNS[1:], *measurements]
    columns = [name for name in schema.names if name in wanted]
    return _Layout(columns, geometry, classes, measurements, own)


def _numbers(schema: pa.Schema) -> dict[str, str]:
    is_number = (pa.types.is_integer, pa.types.is_floating)
    return {
        field.name: field.name
        for field in schema
        if field.name not in OWN_COLUMNS and any(check(field.type) for check in is_number)
    }


def _cells(batch: pa.RecordBatch, layout: _Layout, where: str, repairs: Repairs) -> Cells:
    given = set(batch.schema.names)
    outline, xy = None, np.full((batch.num_rows, 2), np.nan)
    if layout.geometry is not None:
        outline, xy = _shapes(batch[layout.geometry], where, repairs)
    if {"x", "y"} <= given:
        xy = np.column_stack([_floats(batch["x"]), _floats(batch["y"])])
    label, classes = np.zeros(batch.num_rows, np.int16), layout.classes or ("cell",)
    if "class" in given:
        label, classes = _codes(batch["class"], layout.classes, where)
    kind = None
    if "kind" in given:
        kind, names = _codes(batch["kind"], KINDS, where)
        if names != KINDS:
            raise FormatError(
                where, f"has objects of kind {names[len(KINDS)]!r}; known are {', '.join(KINDS)}"
            )
    placed: NDArray[np.bool_] = np.abs(xy).max(axis=1, initial=0) <= FARTHEST_PX
    if "x" in given:  # else it was counted with the geometry
        repairs.count(NOT_FINITE, (~placed).sum())
    return Cells(
        np.where(placed[:, None], xy, 0),
        classes=classes,
        label=label,
        score=_floats(batch["score"]) if "score" in given else None,
        outline=outline,
        id=_ids(batch["id"], where) if "id" in given else None,
        measurements={name: _floats(batch[column]) for column, name in layout.measurements.items()},
        kind=kind,
        nucleus=_shapes(batch["nucleus"], where, repairs)[0] if "nucleus" in given else None,
    )[placed]


def _floats(column: pa.Array) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _codes(column: pa.Array, known: tuple[str, ...], where: str) -> tuple[NDArray[np.int16], tuple[str, ...]]:
    """Return the number of each name, -1 for none, and the names: those known before, then others."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    names = [str(name) for name in column.dictionary.to_pylist()]
    every = tuple(dict.fromkeys([*known, *names]))
    if len(every) > np.iinfo(np.int16).max:
        raise FormatError(where, f"has {len(every):,} classes; are they ids?")
    place = np.array([*(every.index(name) for name in names), -1], np.int16)
    return place[column.indices.fill_null(-1).to_numpy(zero_copy_only=False)], every


def _ids(column: pa.Array, where: str) -> NDArray[Any]:
    if pa.types.is_integer(column.type) and not column.null_count:
        numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers
    texts = column.cast(pa.string()).fill_null("").cast(pa.binary())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > LONGEST_ID_BYTES:
        raise FormatError(where, f"an id has {longest:,} bytes; at most {LONGEST_ID_BYTES} are taken")
    ids: NDArray[np.bytes_] = texts.to_numpy(zero_copy_only=False).astype(f"S{max(longest, 1)}")
    return ids


def _shapes(column: pa.Array, where: str, repairs: Repairs) -> Outlines:
    """Return outlines and places; a point has a place only."""
    wkb = column.to_numpy(zero_copy_only=False)
    shapes = shapely.from_wkb(wkb, on_invalid="ignore")
    broken = np.flatnonzero(shapely.is_missing(shapes) & column.is_valid().to_numpy(zero_copy_only=False))
    if len(broken):
        raise FormatError(
            where, f"{len(broken):,} geometries are not WKB, the first one {wkb[broken[0]][:20]!r}"
        )
    kind = shapely.get_type_id(shapes)
    is_polygon = np.isin(kind, (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON))
    repairs.count("geometries that are no points or polygons left out", (~is_polygon & (kind > 0)).sum())
    polygons = np.where(is_polygon, shapes, np.array(None))
    built = build_outlines(rings_of(polygons), repairs, wanted=is_polygon)
    points = shapes[kind == 0]
    built.places[kind == 0] = np.column_stack([shapely.get_x(points), shapely.get_y(points)])
    repairs.count(NOT_FINITE, np.isnan(built.places[kind == 0]).any(axis=1).sum())
    return built
