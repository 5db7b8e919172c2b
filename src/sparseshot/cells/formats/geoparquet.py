"""GeoParquet 1.1, the native format: holds everything, with a geometry that any GIS reads."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.arrow_columns import cells_of_columns, columns_of_cells, floats
from sparseshot.cells.formats.options import (
    FREE_BYTES,
    MOST_EXPANSION,
    OpenFile,
    ReadOptions,
    WriteOptions,
    filled_ids,
    with_score,
)
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import Cells
from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.files import replacing

ROWS = 1 << 18
"""Rows of a batch."""
KEY = b"sparseshot"
"""Key of the metadata for what columns cannot hold."""
OWN_COLUMNS = ("geometry", "x", "y", "class", "score", "id", "kind", "name", "nucleus")
_STORED: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["class", "kind"],
    "write_statistics": ["x", "y"],
}


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read files of sparseshot in full, of others geometry, class, score, id and columns of numbers."""
    cells = _read(source.file, source.name, options.repairs)
    return replace(cells, id=filled_ids(cells.id, options.repairs))


def read_places(path: Path, *, measurements: bool = True) -> Cells:
    """Read everything but the outlines, for millions of cells of which only the places are needed."""
    if not path.is_file():
        raise DataNotFoundError(path, "there is no such file")
    return _read(path, path.name, Repairs(), outlines=False, measurements=measurements)


def read_own(path: Path) -> Cells:
    """Read a file written by this program and unchanged since, without checking its outlines again."""
    return _read(path, path.name, Repairs(), checks=False)


def measurement_names(path: Path) -> dict[str, str]:
    """Return the columns of measurements, and the names of the measurements that they hold."""
    return _layout(pq.read_schema(path), path.name).measurements


def _read(
    file: BinaryIO | Path,
    name: str,
    repairs: Repairs,
    *,
    outlines: bool = True,
    checks: bool = True,
    measurements: bool = True,
) -> Cells:
    """Read the columns and the metadata."""
    size = file.stat().st_size if isinstance(file, Path) else file.seek(0, os.SEEK_END)
    try:
        parquet = pq.ParquetFile(file)
        layout = _layout(parquet.schema_arrow, name)
        if not outlines and {"x", "y"} <= set(layout.columns):
            columns = [each for each in layout.columns if each not in {layout.geometry, "nucleus"}]
            layout = layout._replace(columns=columns, geometry=None)
        if not measurements:
            columns = [each for each in layout.columns if each not in layout.measurements]
            layout = layout._replace(columns=columns, measurements={})
        batches = _unpacked_batches(file, parquet, layout.columns, name, size)
        tables = [_cells(batch, layout, name, repairs, checks=checks) for batch in batches]
    except (pa.ArrowException, KeyError, OSError, TypeError, ValueError) as error:  # raised by pyarrow
        raise FormatError(name, f"is not readable GeoParquet: {error}") from None
    cells = Cells.concatenate(tables or [Cells([], classes=layout.classes)])
    own = layout.own
    if not own:
        return with_score(cells, cells.score)
    try:
        return replace(
            cells,
            mpp=own.get("mpp"),
            colors=own.get("colors") and tuple(map(tuple, own["colors"])),
            regions=shapely.from_wkb(np.array(own.get("regions", []), object)),
            region_notes=own.get("region_notes"),
        )
    except (TypeError, ValueError, InputError, shapely.GEOSException) as error:
        raise FormatError(name, f"its metadata {KEY.decode()!r} cannot be understood: {error}") from None


class _Layout(NamedTuple):
    """Columns of a file."""

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
            raise FormatError(where, "has neither a GeoParquet geometry nor columns x and y")
        if geometry is not None and geo["columns"][geometry]["encoding"] != "WKB":
            raise FormatError(
                where, f"its geometry is {geo['columns'][geometry]['encoding']}; only WKB is read"
            )
        if own and has_places and not own["outlines"]:
            geometry = None  # x and y hold the points
        classes = tuple(str(name) for name in own.get("classes", ()))
        measurements = dict(own["measurements"]) if own else _numbers(schema)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(where, f"its metadata cannot be understood: {error!r}") from None
    wanted = {geometry, *OWN_COLUMNS[1:], *measurements}
    if geometry is not None and not own:
        wanted -= {"x", "y"}  # of another program, in any unit
    columns = [name for name in schema.names if name in wanted]
    return _Layout(columns, geometry, classes, measurements, own)


def _numbers(schema: pa.Schema) -> dict[str, str]:
    is_number = (pa.types.is_integer, pa.types.is_floating)
    return {
        field.name: field.name
        for field in schema
        if field.name not in OWN_COLUMNS and any(check(field.type) for check in is_number)
    }


def _cells(batch: pa.RecordBatch, layout: _Layout, where: str, repairs: Repairs, *, checks: bool) -> Cells:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for each in {layout.geometry, "nucleus"} & columns.keys():
        if pa.types.is_dictionary(columns[each].type):
            columns[each] = columns[each].dictionary_decode()
    outline, xy = None, np.full((batch.num_rows, 2), np.nan)
    if layout.geometry is not None:
        column = columns[layout.geometry]
        if checks:
            outline, xy = _shapes(column, where, repairs)
        else:
            outline = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    if "x" in columns and "y" in columns:
        xy = np.column_stack([floats(columns["x"]), floats(columns["y"])])
        repairs.count(NOT_FINITE, len(xy) - (np.abs(xy) <= FARTHEST_PX).all(axis=1).sum())
    return cells_of_columns(
        columns,
        xy,
        where,
        classes=layout.classes,
        measurements=layout.measurements,
        outline=outline,
        nucleus=_shapes(columns["nucleus"], where, repairs)[0] if "nucleus" in columns else None,
    )


def _shapes(
    column: pa.Array, where: str, repairs: Repairs
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    """Return outlines and centroids; a point has no outline."""
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
    outlines, places = build_outlines(rings_of(polygons), repairs, wanted=is_polygon)
    is_point = (kind == 0) & ~shapely.is_empty(shapes)
    points = shapes[is_point]
    places[is_point] = np.column_stack([shapely.get_x(points), shapely.get_y(points)])
    repairs.count(NOT_FINITE, np.isnan(places[kind == 0]).any(axis=1).sum())
    return outlines, places


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:  # noqa: ARG001  nothing is lost here
    """Write in groups of rows; µm per pixel, classes, colours and regions are metadata."""
    named = {_column_name(name): name for name in cells.measurements}
    own = {
        "mpp": cells.mpp,
        "classes": cells.classes,
        "colors": cells.colors,
        "regions": [shapely.to_wkb(region, hex=True) for region in cells.regions],
        "region_notes": None if cells.region_notes is None else list(cells.region_notes),
        "measurements": named,
        "outlines": cells.outline is not None,
    }
    metadata = {KEY: orjson.dumps(own), b"geo": orjson.dumps(_geo(cells))}
    schema = _table(cells[:0], named).schema.with_metadata(metadata)
    with pq.ParquetWriter(file, schema, **_STORED) as writer:
        for start in range(0, len(cells), ROWS):
            writer.write_table(_table(cells[start : start + ROWS], named).cast(schema))


def write_with(source: Path, target: Path, measurements: Mapping[str, NDArray[np.floating]]) -> None:
    """Copy a file written by :func:`write` with further measurements; its outlines are not decoded."""
    table = pq.read_table(source, use_threads=False)
    own = orjson.loads(table.schema.metadata[KEY])
    for name, column in measurements.items():
        table = table.append_column(_column_name(name), pa.array(column))
        own["measurements"][_column_name(name)] = name
    table = table.replace_schema_metadata({**table.schema.metadata, KEY: orjson.dumps(own)})
    with replacing(target) as temporary:
        pq.write_table(table, temporary, row_group_size=ROWS, **_STORED)


def _column_name(measurement: str) -> str:
    return f"measurement {measurement}" if measurement in OWN_COLUMNS else measurement


def _geo(cells: Cells) -> dict[str, Any]:
    """Return the metadata of the standard; pixels have no coordinate reference system."""
    columns = {"geometry": cells.outline, "nucleus": cells.nucleus}
    described: dict[str, dict[str, Any]] = {
        name: {
            "encoding": "WKB",
            "crs": None,
            "geometry_types": sorted(_types(shapes) | ({"Point"} if name == "geometry" else set())),
        }
        for name, shapes in columns.items()
        if name == "geometry" or shapes is not None
    }
    if len(cells):
        bounds = [*cells.xy.min(axis=0), *cells.xy.max(axis=0)]
        if cells.outline is not None:
            of_outlines = shapely.total_bounds(cells.outline)
            bounds = [*np.fmin(bounds[:2], of_outlines[:2]), *np.fmax(bounds[2:], of_outlines[2:])]
        described["geometry"]["bbox"] = [float(bound) for bound in bounds]
    return {"version": "1.1.0", "primary_column": "geometry", "columns": described}


def _types(shapes: NDArray[np.object_] | None) -> set[str]:
    names = {3: "Polygon", 6: "MultiPolygon"}
    return set() if shapes is None else {names[i] for i in np.unique(shapely.get_type_id(shapes)) if i >= 0}


def _table(cells: Cells, named: Mapping[str, str]) -> pa.Table:
    shapes = shapely.points(cells.xy)
    if cells.outline is not None:
        shapes = np.where(shapely.is_missing(cells.outline), shapes, cells.outline)
    columns = {"geometry": pa.array(shapely.to_wkb(shapes), pa.binary())} | columns_of_cells(cells)
    if cells.nucleus is not None:
        columns["nucleus"] = pa.array(shapely.to_wkb(cells.nucleus), pa.binary())
    return pa.table(columns | {column: pa.array(cells.measurements[name]) for column, name in named.items()})


def _unpacked_batches(
    file: BinaryIO | Path, parquet: pq.ParquetFile, columns: Sequence[str], name: str, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a file of ``size`` bytes; texts that repeat stay dictionaries.

    A kilobyte of Parquet can hold a billion equal rows, or a megabyte of text that every row refers to. What
    is read may be :data:`MOST_EXPANSION` times as large as the file. A page that is larger than the metadata
    state is not noticed before it is unpacked, to 2 GiB at most.
    """
    metadata, left = parquet.metadata, max(FREE_BYTES, MOST_EXPANSION * size)
    too_large = FormatError(
        name,
        f"unpacks to more than {MOST_EXPANSION} times its size; divide it, or write it without compression",
    )
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns]
    texts = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"]
    for chunk in texts:
        if "DELTA_BYTE_ARRAY" in chunk.encodings:
            raise FormatError(
                name,
                f"its column {chunk.path_in_schema!r} is encoded as DELTA_BYTE_ARRAY, which hides its size; "
                "write it with the encoding PLAIN or a dictionary",
            )
    stated = sum(chunk.total_uncompressed_size for chunk in chunks)
    if max(stated, 8 * metadata.num_rows * len(columns)) > left:
        raise too_large
    repeated = sorted({chunk.path_in_schema for chunk in texts if chunk.has_dictionary_page})
    if repeated:
        parquet = pq.ParquetFile(file, metadata=metadata, read_dictionary=repeated)
    for batch in parquet.iter_batches(ROWS, columns=list(columns), use_threads=False):
        left -= sum(_unpacked_bytes(column) for column in batch.columns)
        if left < 0:
            raise too_large
        yield batch


def _unpacked_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type) or pa.types.is_primitive(column.type.value_type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary.cast(pa.binary()))
    return int(pc.sum(pc.take(lengths, column.indices).cast(pa.int64())).as_py() or 0)
