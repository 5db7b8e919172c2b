"""A table of cells as GeoJSON that QuPath reads, or as a zip of it that grows."""

import hashlib
import io
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby, pairwise
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


PART_CELLS = 20_000
"""QuPath reads each part of the zip whole into memory, so they stay small."""

_DEFLATE_LEVEL = 4
"""Half the time of level 6, and a file an eighth larger."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_HYPHENS = (8, 13, 18, 23)  # of the text of a UUID
_NAMESPACE = uuid.UUID("4d8f8f2e-7d0a-5f0c-9a56-6f5ae2b6c1d3")


class QuPathArchive:
    """A zip that is written part by part; another thread compresses a part while the next one is made.

    Attributes:
        shards: how many were added.
    """

    def __init__(self, archive: zipfile.ZipFile, pool: ThreadPoolExecutor, name: str, decimals: int) -> None:
        self._archive, self._pool, self._name, self._decimals = archive, pool, name, decimals
        self._waiting: list[Cells] = []
        self._writing: Future[None] | None = None
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
        with (
            replacing(path) as temporary,
            zipfile.ZipFile(temporary, "w") as archive,
            ThreadPoolExecutor(1, thread_name_prefix="qupath") as pool,
        ):
            yield cls(archive, pool, name, decimals)

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
        if self._writing is not None:
            self._writing.result()

    def _write(self, part: Cells) -> None:
        text = io.BytesIO()
        named = replace(part, id=_ids(part, self._name))
        write(named, text, WriteOptions(Repairs(), decimals=self._decimals))
        entry = zipfile.ZipInfo(f"cells-{self._parts:05d}.geojson", _LONG_AGO)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # otherwise the file would name the system it was written on
        if self._writing is not None:
            self._writing.result()
        self._writing = self._pool.submit(
            self._archive.writestr, entry, text.getbuffer(), compresslevel=_DEFLATE_LEVEL
        )
        self._parts += 1


def _ids(cells: Cells, name: str) -> NDArray[np.bytes_]:
    """Name every cell by a UUID made of slide and shape: version 5, the same whenever it is made."""
    if cells.outline is None:
        shapes = np.ascontiguousarray(cells.xy, "<f8").view("V16").ravel().tolist()
    else:
        shapes = shapely.to_wkb(cells.outline, byte_order=1)
    start = hashlib.sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False)
    digests = []
    for shape in shapes:
        digest = start.copy()
        digest.update(shape)
        digests.append(digest.digest())
    octets = np.frombuffer(b"".join(digests), np.uint8).reshape(len(cells), start.digest_size)[:, :16].copy()
    octets[:, 6] = octets[:, 6] & 0x0F | 0x50  # version 5
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # variant of RFC 9562
    letters = np.frombuffer(octets.tobytes().hex().encode(), "S1").reshape(len(cells), 32)
    names = np.full((len(cells), 36), b"-")
    names[:, [k for k in range(36) if k not in _HYPHENS]] = letters
    return names.view("S36").ravel()
