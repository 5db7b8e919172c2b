"""A table of cells as GeoJSON that QuPath reads."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, BinaryIO

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import SCORE
from sparseshot.cells.formats.options import MEMBER, WriteOptions
from sparseshot.cells.formats.qupath import NAME
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
        notes = (
            None if table is cells or cells.region_notes is None else iter(map(_notes, cells.region_notes))
        )
        for part, groups in _parts(table):
            file.write(separator + b",\n".join(_features(part, groups, options.decimals, notes)))
            separator = b",\n"
    file.write(b"\n]}\n")


def _notes(note: Mapping[str, str]) -> bytes:
    """Return members of a region's properties: its name, and other notes as what QuPath calls metadata."""
    others = {key: text for key, text in note.items() if key != NAME}
    named = {"name": note[NAME]} if note.get(NAME) else {}
    members = named | ({"metadata": others} if others else {})
    return b"," + _json(members)[1:-1] if members else b""


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _classifications(cells: Cells) -> list[dict[str, Any]]:
    if cells.colors is None:
        return [{"name": name} for name in cells.classes]
    return [{"name": name, "color": color} for name, color in zip(cells.classes, cells.colors, strict=True)]


def _parts(cells: Cells) -> Iterator[tuple[Cells, list[bytes]]]:
    """Yield the table in parts, with the group of each row; a group is never divided between two parts."""
    groups = _groups(cells)
    start = 0
    while start < len(cells):
        stop = min(start + BATCH_ROWS, len(cells))
        while stop < len(cells) and groups[stop] and groups[stop] == groups[stop - 1]:
            stop += 1
        yield cells[start:stop], groups[start:stop]
        start = stop


def _groups(cells: Cells) -> list[bytes]:
    """Return the id of the multipoint that each row is a point of, empty for none.

    Such rows have its id with ``#`` and a number. A multipoint has one set of properties and one id, so rows
    with different properties, rows with others between them, and rows whose multipoint would have the id of
    another row are points of their own.
    """
    if cells.id is None or cells.id.dtype.kind != "S" or b"#" not in cells.id.tobytes():
        return [b""] * len(cells)
    groups = [_group(name) for name in cells.id.tolist()]
    for shapes in (cells.outline, cells.nucleus):
        for row in () if shapes is None else np.flatnonzero(~shapely.is_missing(shapes)).tolist():
            groups[row] = b""
    neighbours = zip(pairwise(groups), _alike(cells), strict=True)
    apart = {group for (group, after), alike in neighbours if group == after and not alike}
    runs = Counter(group for group, _ in groupby(groups))
    apart |= {group for group, count in runs.items() if count > 1} | set(cells.id.tolist())
    return [b"" if group in apart else group for group in groups]


def _group(name: bytes) -> bytes:
    group, _, number = name.rpartition(b"#")
    return group if number.isdigit() else b""


def _alike(cells: Cells) -> NDArray[np.bool_]:
    """Return for each row but the last whether the next one has the same properties."""
    alike = np.ones(max(len(cells) - 1, 0), bool)
    for column in (cells.label, cells.kind, cells.score, *cells.measurements.values()):
        if column is not None:
            both_nan = np.isnan(column[:-1]) & np.isnan(column[1:])
            alike &= (column[:-1] == column[1:]) | both_nan
    if cells.name is not None:
        alike &= cells.name[:-1] == cells.name[1:]
    return alike


def _features(
    cells: Cells, groups: list[bytes], decimals: int, notes: Iterator[bytes] | None
) -> Iterator[bytes]:
    """Yield each feature as JSON, joined from the texts of whole columns: twice as fast as dictionaries."""
    geometries = _geometries(cells.outline, len(cells), decimals)
    nuclei = _geometries(cells.nucleus, len(cells), decimals)
    points = [b"[%b]" % text for text in _texts(_rounded(cells.xy, decimals))]
    kinds = [KINDS.index("annotation" if cells.score is None else "detection")] * len(cells)
    kinds = kinds if cells.kind is None else cells.kind.tolist()
    kind_texts = [_json(name) for name in KINDS]
    ids = [None] * len(cells) if cells.id is None else cells.id.tolist()
    labels = cells.label.tolist()
    classes = [b',"classification":' + _json(each) for each in _classifications(cells)] + [b""]
    measured = _measurements(cells)
    for row, group in enumerate(groups):
        if row and group and group == groups[row - 1]:
            continue  # written with the first point of the multipoint
        geometry = geometries[row]
        if not geometry:
            geometry = b'{"type":"Point","coordinates":%b}' % points[row]
            if group:
                stop = next((k for k in range(row, len(cells)) if groups[k] != group), len(cells))
                geometry = b'{"type":"MultiPoint","coordinates":[%b]}' % b",".join(points[row:stop])
        name = group or ids[row]
        yield b'{"type":"Feature"%b,"geometry":%b%b,"properties":{"objectType":%b%b%b%b%b}}' % (
            b"" if name is None else b',"id":' + _json(name.decode() if isinstance(name, bytes) else name),
            geometry,
            b',"nucleusGeometry":' + nuclei[row] if nuclei[row] else b"",
            kind_texts[kinds[row]],
            b',"name":' + _json(cells.name[row]) if cells.name is not None and cells.name[row] else b"",
            classes[labels[row]],
            measured[row],
            b"" if notes is None else next(notes),
        )


def _measurements(cells: Cells) -> list[bytes]:
    """Return the measurements of each cell as a member of its properties; those that are NaN are left out."""
    named = dict(cells.measurements) | ({} if cells.score is None else {SCORE: cells.score})
    if not named:
        return [b""] * len(cells)
    columns = []
    for name, column in named.items():
        key = _json(name) + b":"
        texts = [key + text for text in _texts(column)]
        for row in np.flatnonzero(~np.isfinite(column)).tolist():
            infinite = b"" if np.isnan(column[row]) else b'"Infinity"' if column[row] > 0 else b'"-Infinity"'
            texts[row] = infinite and key + infinite
        columns.append(texts)
    return [b',"measurements":{%b}' % b",".join(filter(None, row)) for row in zip(*columns, strict=True)]


def _texts(column: NDArray[np.floating]) -> list[bytes]:
    """Return each number, or each pair of numbers, in the shortest text of its own type."""
    text = _json(np.ascontiguousarray(column))
    return text[2:-2].split(b"],[") if column.ndim == 2 else text[1:-1].split(b",")


def _rounded(xy: NDArray[np.float64], decimals: int) -> NDArray[np.float64]:
    farthest = np.abs(xy).max(initial=0)
    if not farthest <= FARTHEST_PX:
        raise InputError(f"coordinates reach {farthest:g} pixels; GeoJSON is written up to {FARTHEST_PX:g}")
    return np.round(xy, decimals) + 0.0  # without a minus before zero


def _geometries(outlines: NDArray[np.object_] | None, count: int, decimals: int) -> list[bytes]:
    """Return (multi)polygons as GeoJSON, empty where there is none."""
    if outlines is None:
        return [b""] * count
    shapes = rings_of(outlines)
    xy = _rounded(shapes.xy, decimals)
    rings = [xy[start:stop] for start, stop in pairwise(shapes.rings.tolist())]
    polygons = [rings[start:stop] for start, stop in pairwise(shapes.polygons.tolist())]
    written = []
    for start, stop in pairwise(shapes.outlines.tolist()):
        if stop - start > 1:
            written.append(b'{"type":"MultiPolygon","coordinates":%b}' % _json(polygons[start:stop]))
        elif stop > start:
            written.append(b'{"type":"Polygon","coordinates":%b}' % _json(polygons[start]))
        else:
            written.append(b"")
    return written
