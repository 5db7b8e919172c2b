"""A table as GeoParquet 1.1: everything it holds, with a geometry that any GIS reads."""

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.geoparquet import KEY, OWN_COLUMNS, ROWS
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.table import KINDS, Cells

_WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:  # noqa: ARG001  nothing is lost here
    """Write in groups of rows; µm per pixel, classes, colours and regions stand in the metadata."""
    named = {_column_name(name): name for name in cells.measurements}
    own = {
        "mpp": cells.mpp,
        "classes": cells.classes,
        "colors": cells.colors,
        "regions": [shapely.to_wkb(region, hex=True) for region in cells.regions],
        "measurements": named,
        "outlines": cells.outline is not None,
    }
    metadata = {KEY: orjson.dumps(own), b"geo": orjson.dumps(_geo(cells))}
    schema = _table(cells[:0], named).schema.with_metadata(metadata)
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=["class", "kind"], write_statistics=["x", "y"]
    ) as writer:
        for start in range(0, len(cells), ROWS):
            writer.write_table(_table(cells[start : start + ROWS], named).cast(schema))


def _column_name(measurement: str) -> str:
    return f"measurement {measurement}" if measurement in OWN_COLUMNS else measurement


def _geo(cells: Cells) -> dict[str, Any]:
    """Return the metadata that the standard asks for; level-0 pixels have no coordinate reference system."""
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
    columns = {
        "geometry": _geometry(cells),
        "x": pa.array(cells.xy[:, 0]),
        "y": pa.array(cells.xy[:, 1]),
        "class": _names(cells.label, cells.classes),
    }
    if cells.score is not None:
        columns["score"] = pa.array(cells.score)
    if cells.id is not None:
        columns["id"] = id_column(cells.id)
    if cells.kind is not None:
        columns["kind"] = _names(cells.kind.astype(np.int16), KINDS)
    if cells.nucleus is not None:
        columns["nucleus"] = pa.array(shapely.to_wkb(cells.nucleus), pa.binary())
    columns |= {column: pa.array(cells.measurements[name]) for column, name in named.items()}
    return pa.table(columns)


def id_column(ids: NDArray[Any]) -> pa.Array:
    """Return ids as numbers or texts; through bytes, for texts made at once would keep their padding."""
    column = pa.array(ids)
    return column.cast(pa.string()) if ids.dtype.kind == "S" else column


def _names(codes: NDArray[np.int16], names: tuple[str, ...]) -> pa.Array:
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _geometry(cells: Cells) -> pa.Array:
    """Return outlines, or points where there is none, as WKB; points without making an object of each."""
    points = np.empty(len(cells), _WKB_POINT)
    points["order"], points["type"] = 1, 1
    points["x"], points["y"] = cells.xy.T
    if cells.outline is None:
        ends = np.arange(len(cells) + 1, dtype=np.int32) * _WKB_POINT.itemsize
        return pa.Array.from_buffers(
            pa.binary(), len(cells), [None, pa.py_buffer(ends), pa.py_buffer(points.tobytes())]
        )
    wkb = shapely.to_wkb(cells.outline)
    bare = np.flatnonzero(shapely.is_missing(cells.outline))
    wkb[bare] = [points[row].tobytes() for row in bare]
    return pa.array(wkb, pa.binary())
