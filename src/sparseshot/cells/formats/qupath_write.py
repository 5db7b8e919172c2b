"""A table of cells as GeoJSON that QuPath reads, or as a zip of it that grows."""

import hashlib
import io
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.options import MEMBER, NAME, SCORE, WriteOptions
from sparseshot.cells.outlines import FARTHEST_PX
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import KINDS, Cells
from sparseshot.errors import InputError
from sparseshot.files import replacing

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
    for table, notes in ((cells, None), (regions, cells.region_notes)):
        start = 0
        for part, groups in _parts(table):
            own_notes = None if notes is None else notes[start : start + len(part)]
            features = _features(part, groups, options.decimals, own_notes)
            file.write(separator + b",\n".join(map(_json, features)))
            separator, start = b",\n", start + len(part)
    file.write(b"\n]}\n")


def _noted(note: Mapping[str, str]) -> dict[str, Any]:
    """Return members of a region's properties: its name, and other notes as what QuPath calls metadata."""
    others = {key: text for key, text in note.items() if key != NAME}
    return ({"name": note[NAME]} if note.get(NAME) else {}) | ({"metadata": others} if others else {})


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
    alike = [False, *_alike(cells).tolist()]
    runs = Counter(group for row, group in enumerate(groups) if not (alike[row] and group == groups[row - 1]))
    taken = set(cells.id.tolist())
    return [group if runs[group] == 1 and group not in taken else b"" for group in groups]


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
    cells: Cells, groups: list[bytes], decimals: int, notes: NDArray[np.object_] | None
) -> Iterator[dict[str, Any]]:
    """Yield each feature, of a multipoint at its first point."""
    points = _rounded(cells.xy, decimals)
    shapes = _geometries(cells.outline, len(cells), decimals)
    nuclei = _geometries(cells.nucleus, len(cells), decimals)
    usual = KINDS.index("annotation" if cells.score is None else "detection")
    kinds = np.full(len(cells), usual) if cells.kind is None else cells.kind
    names = [None] * len(cells) if cells.name is None else cells.name
    ids = [None] * len(cells) if cells.id is None else cells.id.tolist()
    classes = [*_classifications(cells), None]
    measured = _measurements(cells)
    for row, group in enumerate(groups):
        if row and group and group == groups[row - 1]:
            continue
        geometry, own_id = shapes[row], group or ids[row]
        if group:
            stop = next((k for k in range(row, len(cells)) if groups[k] != group), len(cells))
            geometry = {"type": "MultiPoint", "coordinates": points[row:stop]}
        properties = {
            "objectType": KINDS[kinds[row]],
            "name": names[row] or None,
            "classification": classes[cells.label[row]],
            "measurements": measured[row] or None,
        }
        feature = {
            "type": "Feature",
            "id": own_id.decode() if isinstance(own_id, bytes) else own_id,
            "geometry": geometry or {"type": "Point", "coordinates": points[row]},
            "nucleusGeometry": nuclei[row],
            "properties": _given(properties) | ({} if notes is None else _noted(notes[row])),
        }
        yield _given(feature)


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _measurements(cells: Cells) -> list[dict[str, Any]]:
    """Return the measurements of each cell without those that are NaN; JSON has no number for infinity."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(cells))]
    named = dict(cells.measurements) | ({} if cells.score is None else {SCORE: cells.score})
    for name, column in named.items():
        finite = np.isfinite(column).tolist()
        for row, value, is_finite in zip(rows, column, finite, strict=True):  # a float32 has fewer digits
            if is_finite:
                row[name] = value
            elif not np.isnan(value):
                row[name] = "Infinity" if value > 0 else "-Infinity"
    return rows


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


PART_CELLS = 20_000
"""QuPath reads each part of the zip whole into memory, so they stay small."""

_DEFLATE_LEVEL = 4
"""Half the time of level 6, and a file an eighth larger."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_NAMESPACE = uuid.UUID("4d8f8f2e-7d0a-5f0c-9a56-6f5ae2b6c1d3")


class QuPathArchive:
    """A zip that is written part by part.

    Attributes:
        shards: how many were added.
    """

    def __init__(self, archive: zipfile.ZipFile, name: str, decimals: int) -> None:
        self._archive, self._name, self._decimals = archive, name, decimals
        self._waiting: list[Cells] = []
        self._parts = self.shards = 0

    @classmethod
    @contextmanager
    def writing(cls, path: Path, name: str, *, decimals: int) -> Iterator[Self]:
        """Write to a path; the zip is there when the block ends, with one part at least, if an empty one.

        Args:
            path: of the zip.
            name: of the slide; the ids of cells are made of it.
            decimals: of coordinates.
        """
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            yield cls(archive, name, decimals)

    def add(self, shard: Cells) -> None:
        """Add the cells of the next shard; small ones are joined, and large ones cut."""
        self.shards += 1
        self._waiting.append(shard)
        if sum(map(len, self._waiting)) >= PART_CELLS:
            cells = Cells.concatenate(self._waiting)
            while len(cells) >= PART_CELLS:
                self._write(cells[:PART_CELLS])
                cells = cells[PART_CELLS:]
            self._waiting = [cells]

    def finish(self, nothing: Cells) -> None:
        """Write the last part; ``nothing`` is an empty table."""
        cells = Cells.concatenate([nothing, *self._waiting])
        if len(cells) or not self._parts:
            self._write(cells)

    def _write(self, part: Cells) -> None:
        text = io.BytesIO()
        named = replace(part, id=_ids(part, self._name))
        write(named, text, WriteOptions(Repairs(), decimals=self._decimals))
        entry = zipfile.ZipInfo(f"cells-{self._parts:05d}.geojson", _LONG_AGO)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # otherwise the file would name the system it was written on
        self._archive.writestr(entry, text.getbuffer(), compresslevel=_DEFLATE_LEVEL)
        self._parts += 1


def _ids(cells: Cells, name: str) -> NDArray[np.bytes_]:
    """Name every cell by a UUID made of slide and shape: version 5, the same whenever it is made."""
    if cells.outline is None:
        shapes = np.ascontiguousarray(cells.xy, "<f8").view("V16").ravel().tolist()
    else:
        shapes = shapely.to_wkb(cells.outline, byte_order=1)
    start = _NAMESPACE.bytes + name.encode()
    digests = (hashlib.sha1(start + shape, usedforsecurity=False).digest() for shape in shapes)
    names = [str(uuid.UUID(bytes=digest[:16], version=5)) for digest in digests]
    return np.array(names, "S36")
