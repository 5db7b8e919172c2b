"""A table of cells as GeoJSON that QuPath reads."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.options import MEMBER, WriteOptions
from sparseshot.cells.formats.qupath import NAME, SCORE
from sparseshot.cells.outlines import FARTHEST_PX
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import KINDS, Cells
from sparseshot.errors import InputError

BATCH_ROWS = 20_000


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write a collection of features; the score becomes a measurement, exhaustive regions annotations."""
    member = {"mpp": cells.mpp, "classes": _classifications(cells)}  # what features cannot hold
    file.write(b'{"type":"FeatureCollection","%b":%b,"features":[\n' % (MEMBER.encode(), _json(member)))
    regions = Cells(
        np.zeros((len(cells.regions), 2)),
        classes=(options.exhaustive_class,),
        outline=cells.regions,
        kind=np.full(len(cells.regions), KINDS.index("annotation")),
    )
    separator = b""
    for table in (cells, regions):
        notes = None if table is cells or cells.region_notes is None else iter(cells.region_notes)
        for part, groups in _parts(table):
            features = _features(part, groups, options.decimals)
            if notes is not None:
                features = (_noted(feature, next(notes)) for feature in features)
            file.write(separator + b",\n".join(map(_json, features)))
            separator = b",\n"
    file.write(b"\n]}\n")


def _noted(feature: dict[str, Any], note: Mapping[str, str]) -> dict[str, Any]:
    """Return the feature of a region with its name, and other notes as what QuPath calls metadata."""
    others = {key: text for key, text in note.items() if key != NAME}
    named = {"name": note[NAME]} if note.get(NAME) else {}
    feature["properties"] |= named | ({"metadata": others} if others else {})
    return feature


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _classifications(cells: Cells) -> list[dict[str, Any]]:
    if cells.colors is None:
        return [{"name": name} for name in cells.classes]
    return [{"name": name, "color": color} for name, color in zip(cells.classes, cells.colors, strict=True)]


def _parts(cells: Cells) -> Iterator[tuple[Cells, list[bytes]]]:
    """Yield the table in parts, with the id of the multipoint that each row was read from, empty for none.

    Such rows have its id with ``#`` and a number. A multipoint is never divided between two parts.
    """
    groups = [b""] * len(cells)
    if cells.id is not None and cells.id.dtype.kind == "S" and b"#" in cells.id.tobytes():
        outlined = np.zeros(len(cells)) if cells.outline is None else ~shapely.is_missing(cells.outline)
        pairs = zip(cells.id.tolist(), outlined, strict=True)
        groups = [b"" if has_outline else _group(name) for name, has_outline in pairs]
    start = 0
    while start < len(cells):
        stop = min(start + BATCH_ROWS, len(cells))
        while stop < len(cells) and groups[stop] and groups[stop] == groups[stop - 1]:
            stop += 1
        yield cells[start:stop], groups[start:stop]
        start = stop


def _group(name: bytes) -> bytes:
    group, _, number = name.rpartition(b"#")
    return group if number.isdigit() else b""


def _features(cells: Cells, groups: list[bytes], decimals: int) -> Iterator[dict[str, Any]]:
    geometries = _geometries(cells.outline, len(cells), decimals)
    nuclei = _geometries(cells.nucleus, len(cells), decimals)
    points = _rounded(cells.xy, decimals)
    kinds = [KINDS.index("annotation" if cells.score is None else "detection")] * len(cells)
    kinds = kinds if cells.kind is None else cells.kind.tolist()
    ids = [None] * len(cells) if cells.id is None else cells.id.tolist()
    classifications, labels = [*_classifications(cells), None], cells.label.tolist()
    columns = {name: _numbers(column) for name, column in cells.measurements.items()}
    if cells.score is not None:
        columns[SCORE] = _numbers(cells.score)
    for row, group in enumerate(groups):
        if row and group and group == groups[row - 1]:
            continue  # written with the first point of the multipoint
        geometry = geometries[row]
        if geometry is None:
            geometry = {"type": "Point", "coordinates": points[row]}
            if group:
                stop = next((k for k in range(row, len(cells)) if groups[k] != group), len(cells))
                geometry = {"type": "MultiPoint", "coordinates": points[row:stop]}
        feature: dict[str, Any] = {"type": "Feature"}
        if ids[row] is not None:
            name = group or ids[row]
            feature["id"] = name.decode() if isinstance(name, bytes) else name
        feature["geometry"] = geometry
        if nuclei[row] is not None:
            feature["nucleusGeometry"] = nuclei[row]
        properties: dict[str, Any] = {"objectType": KINDS[kinds[row]]}
        feature["properties"] = properties
        if cells.name is not None and cells.name[row]:
            properties["name"] = cells.name[row]
        if labels[row] >= 0:
            properties["classification"] = classifications[labels[row]]
        if columns:
            values = ((name, column[row]) for name, column in columns.items())
            properties["measurements"] = {name: value for name, value in values if value is not None}
        yield feature


def _numbers(column: NDArray[np.floating]) -> list[Any]:
    """Return numbers that have the shortest text of their own type, None for NaN, and texts for infinity."""
    numbers: list[Any] = orjson.loads(_json(np.ascontiguousarray(column)))
    for row in np.flatnonzero(np.isinf(column)).tolist():
        numbers[row] = "Infinity" if column[row] > 0 else "-Infinity"
    return numbers


def _rounded(xy: NDArray[np.float64], decimals: int) -> NDArray[np.float64]:
    farthest = np.abs(xy).max(initial=0)
    if not farthest <= FARTHEST_PX:
        raise InputError(f"coordinates reach {farthest:g} pixels; GeoJSON is written up to {FARTHEST_PX:g}")
    return np.round(xy, decimals) + 0.0  # without a minus before zero


def _geometries(
    outlines: NDArray[np.object_] | None, count: int, decimals: int
) -> list[dict[str, Any] | None]:
    """Return (multi)polygons as GeoJSON, None where there is none."""
    if outlines is None:
        return [None] * count
    shapes = rings_of(outlines)
    xy = _rounded(shapes.xy, decimals)
    rings = [xy[start:stop] for start, stop in pairwise(shapes.rings.tolist())]
    polygons = [rings[start:stop] for start, stop in pairwise(shapes.polygons.tolist())]
    written: list[dict[str, Any] | None] = []
    for start, stop in pairwise(shapes.outlines.tolist()):
        if stop - start > 1:
            written.append({"type": "MultiPolygon", "coordinates": polygons[start:stop]})
        else:
            written.append({"type": "Polygon", "coordinates": polygons[start]} if stop > start else None)
    return written
