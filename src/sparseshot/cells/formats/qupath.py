"""QuPath's GeoJSON, from version 0.2 on, as a table of cells."""

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES, filled_ids
from sparseshot.cells.formats.geojson_stream import Batch, FeatureStream, Marks
from sparseshot.cells.formats.options import OpenFile, ReadOptions
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, Outlines, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, offsets
from sparseshot.cells.table import GREY, KINDS, Cells
from sparseshot.errors import FormatError

SCORE = "Detection probability"
"""Name of the measurement that holds the score; QuPath's own detectors use it."""
MEMBER = "sparseshot"
"""Member of the collection, ignored by QuPath, for what features cannot hold."""

_KINDS = {name: code for code, name in enumerate(KINDS)} | {
    "PathDetectionObject": 0,
    "PathAnnotationObject": 1,
    "PathCellObject": 2,
}
_NO_CELLS: dict[Any, str] = {
    "tile": "tiles left out",
    "PathTileObject": "tiles left out",
    "tmaCore": "TMA cores left out",
    "tma_core": "TMA cores left out",
    "TMACoreObject": "TMA cores left out",
    "root": "",  # only holds the others
    "PathRootObject": "",
    "LineString": "lines left out",
    "MultiLineString": "lines left out",
    "GeometryCollection": "geometry collections left out",
}
# Version 0.2 wrote the type of an object as its id.
_OLD_TYPES = {name for name in (*_KINDS, *_NO_CELLS) if name.endswith("Object")}
_DEPTHS = {"Point": 1, "MultiPoint": 2, "Polygon": 3, "MultiPolygon": 4}
_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_MOST_MEASUREMENTS = 1000
_NOTHING: Mapping[str, Any] = {}
_NOT_UNDERSTOOD = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read a collection, an array of features or a single one; each point of a multipoint is a cell."""
    stream = FeatureStream(source.file, source.name)
    reader = _Reader(options.exhaustive_class, options.repairs)
    collects = gc.isenabled()
    gc.disable()  # JSON has no cycles; looking for them in millions of objects takes half of the time
    try:
        tables = [_understood(reader, batch, source.name) for batch in stream]
    finally:
        if collects:
            gc.enable()
    cells = Cells.concatenate(tables or [Cells([], classes=(), id=np.empty(0, "S1"))])
    del tables
    for what, number in reader.left_out.items():
        options.repairs.count(what, number if what else 0)
    own = stream.frame.get(MEMBER) if isinstance(stream.frame, dict) else None
    if isinstance(own, dict):
        cells = _with_member(cells, own, reader, source.name)
    measurements = dict(cells.measurements)
    score = measurements.pop(SCORE, None)
    if score is not None and not (np.nanmin(score) >= 0 and np.nanmax(score) <= 1):
        measurements[SCORE], score = score, None
    ids = None if cells.id is None else filled_ids(cells.id, options.repairs)
    colors = reader.colors
    return replace(
        cells,
        colors=tuple(colors.get(name, GREY) for name in cells.classes) if colors else None,
        id=ids.astype(np.int64) if ids is not None and reader.ids_are_numbers else ids,
        measurements=measurements,
        score=None if score is None else np.where(np.isnan(score), 1, score),
    )


def _understood(reader: "_Reader", batch: Batch, where: str) -> Cells:
    """Return the table of a batch; if that fails, find the feature that is to blame."""
    try:
        return reader.table(batch)
    except _NOT_UNDERSTOOD as error:
        for number in range(len(batch.found.features)):
            try:
                reader.table(batch.single(number))
            except _NOT_UNDERSTOOD as of_one:
                raise _error(of_one, batch.first + number, where) from None
        raise _error(error, batch.first, where) from None


def _error(error: Exception, number: int, where: str) -> FormatError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return FormatError(where, f"feature {number} cannot be understood: {reason}")


class _Objects(NamedTuple):
    """Objects as columns."""

    features: list[Any]
    properties: list[Any]
    kinds: list[Any]
    geometries: list[Any]

    def only(self, rows: list[int]) -> "_Objects":
        """Return the objects of some rows."""
        return _Objects(*([column[row] for row in rows] for column in self))


class _Reader:
    """Builds tables of batches and keeps what they have in common.

    Attributes:
        classes: number of each class, in the order of the file.
        colors: red, green and blue of the classes that have a colour.
        ids_are_numbers: whether all ids so far were whole numbers.
        left_out: how many objects of which kind were no cells.
    """

    def __init__(self, exhaustive_class: str, repairs: Repairs) -> None:
        self.classes: dict[str, int] = {}
        self.colors: dict[str, tuple[int, int, int]] = {}
        self.ids_are_numbers = True
        self.left_out: Counter[str] = Counter()
        self._exhaustive = exhaustive_class
        self._repairs = repairs
        self._marks = Marks()
        self._named: dict[bytes, str | None] = {}
        self._measured: dict[str, None] = {}

    def table(self, batch: Batch) -> Cells:
        """Build the table of a batch, column by column; a multipoint becomes several cells."""
        depths, shapes = batch.found.depths, batch.shapes()
        objects = self._objects(batch)
        shape = self._shape_numbers(objects.geometries, depths)
        names = self._class_names([each.get("classification") for each in objects.properties])
        regions = np.empty(0, np.int64)
        if self._exhaustive in names:
            is_region = np.array([name == self._exhaustive for name in names]) & (depths[shape] >= 3)
            regions, shape, kept = shape[is_region], shape[~is_region], np.flatnonzero(~is_region).tolist()
            objects, names = objects.only(kept), [names[k] for k in kept]
        features, properties, kinds, _ = objects
        nucleus = np.full(len(features), -1)
        cores = {k: core for k, each in enumerate(features) if (core := each.get("nucleusGeometry"))}
        if cores:
            nucleus[list(cores)] = self._shape_numbers(list(cores.values()), depths)

        wanted = np.zeros(len(depths), bool)
        wanted[np.concatenate([shape, regions, nucleus[nucleus >= 0]])] = True
        outlines = build_outlines(shapes, self._repairs, wanted=wanted & (depths >= 3))
        self._repairs.count("empty geometries left out", (depths[shape] == 0).sum())
        row, nth, xy = _places(shapes, outlines, shape, depths)
        finite = (np.abs(xy) <= FARTHEST_PX).all(axis=1)
        self._repairs.count(NOT_FINITE, (~finite).sum())
        row, nth, xy = row[finite], nth[finite], xy[finite]

        several = depths[shape[row]] == 2
        ids = self._ids([each.get("id") for each in features])[row]
        if several.any():
            self.ids_are_numbers = False
            parts = zip(ids.tolist(), several.tolist(), nth.tolist(), strict=True)
            ids = np.array([b"%b#%d" % (name, k) if name and s else name for name, s, k in parts], np.bytes_)
        nuclei = outlines.shapes[nucleus[row]]
        nuclei[nucleus[row] < 0] = None
        exhaustive = outlines.shapes[regions]
        for name in dict.fromkeys(filter(None, names)):
            self.classes.setdefault(name, len(self.classes))
        return Cells(
            xy,
            classes=tuple(self.classes),
            label=np.array([self.classes.get(name or "", -1) for name in names], np.int64)[row],
            outline=_some(outlines.shapes[shape[row]]),
            id=ids,
            regions=exhaustive[~shapely.is_missing(exhaustive)],
            measurements=self._measurements([each.get("measurements") for each in properties], row),
            kind=np.array([_KINDS.get(kind, 1) for kind in kinds], np.uint8)[row],
            nucleus=_some(nuclei),
            name=self._object_names(properties, row),
        )

    def _objects(self, batch: Batch) -> _Objects:
        """Return the objects that may be cells, nested ones included; count the others."""
        features = batch.objects(self._marks)
        properties = [each.get("properties") or _NOTHING for each in features]
        if any("childObjects" in each or "children" in each for each in properties):
            features = list(_with_children(features))
            properties = [each.get("properties") or _NOTHING for each in features]
        kinds = [each.get("objectType") for each in properties]
        if not all(kinds):
            kinds = [_kind(*pair) for pair in zip(features, properties, strict=True)]
        geometries = [each.get("geometry") for each in features]
        if not all(geometries):
            # A bare geometry is an annotation to QuPath.
            geometries = [f["geometry"] if f.get("type", "Feature") == "Feature" else f for f in features]
        objects = _Objects(features, properties, kinds, geometries)
        types = [each and each["type"] for each in geometries]
        if not _NO_CELLS.keys().isdisjoint(chain(kinds, types)):
            no_cell = [
                _NO_CELLS[kind] if kind in _NO_CELLS else _NO_CELLS.get(of)
                for kind, of in zip(kinds, types, strict=True)
            ]
            self.left_out.update(what for what in no_cell if what)
            objects = objects.only([k for k, what in enumerate(no_cell) if what is None])
        if None in objects.geometries:
            raise TypeError('it has no geometry; export it again from QuPath with "Export all objects"')
        return objects

    def _shape_numbers(self, geometries: list[Any], depths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the shape of each geometry, which must be one of its type."""
        kinds, taken = [each["type"] for each in geometries], [each["coordinates"] for each in geometries]
        unknown = set(kinds) - _DEPTHS.keys()
        if unknown:
            raise TypeError(f"it has a geometry of type {unknown.pop()!r}; known are {', '.join(_DEPTHS)}")
        numbers = [self._marks.number.get(each, -1) if isinstance(each, str) else -1 for each in taken]
        shape, wanted = np.array(numbers, np.int64), np.array([_DEPTHS[kind] for kind in kinds], np.int64)
        found = np.append(depths, -1)[shape]
        wrong = np.flatnonzero((found != wanted) & (found != 0))
        if len(wrong):
            raise TypeError(f"its coordinates are not those of a {kinds[wrong[0]]}")
        return shape

    def _class_names(self, classifications: list[Any]) -> list[str | None]:
        keys = list(map(orjson.dumps, classifications))
        for key in dict.fromkeys(keys):
            if key not in self._named:
                self._named[key] = self.class_name(orjson.loads(key))
        return [self._named[key] for key in keys]

    def class_name(self, classification: Any) -> str | None:
        """Return the name of a class, given as text or as an object of any version, and note its colour."""
        if classification is None or isinstance(classification, str):
            return classification or None
        name = classification.get("name")
        if name is None and "names" in classification:
            name = ": ".join(classification["names"])
        if classification.get("parentClass"):
            name = f"{self.class_name(classification['parentClass'])}: {name}"
        if not isinstance(name, str):
            raise TypeError(f"its class is called {name!r}")
        if name not in self.colors:
            color = classification.get("color", classification.get("colorRGB"))
            if isinstance(color, int):  # packed as alpha, red, green, blue
                self.colors[name] = (color >> 16 & 255, color >> 8 & 255, color & 255)
            elif color is not None:
                red, green, blue = color
                self.colors[name] = (int(red), int(green), int(blue))
        return name

    def _ids(self, ids: list[Any]) -> NDArray[np.bytes_]:
        """Return ids as text, empty for objects without one."""
        kinds = set(map(type, ids))
        if not kinds <= {str, int, float, type(None)}:
            raise TypeError(f"its id is a {next(kind.__name__ for kind in kinds - {str, int})}")
        self.ids_are_numbers &= kinds <= {int} and all(abs(each) < 2**63 for each in ids)
        if kinds == {str} and _OLD_TYPES.isdisjoint(ids):
            texts = list(map(str.encode, ids))
        else:
            texts = [b"" if each is None or each in _OLD_TYPES else str(each).encode() for each in ids]
        if max(map(len, texts), default=0) > LONGEST_ID_BYTES:
            raise ValueError(f"its id is longer than {LONGEST_ID_BYTES} bytes")
        return np.array(texts, np.bytes_)

    def _object_names(self, properties: list[Any], row: NDArray[np.int64]) -> NDArray[np.object_] | None:
        names = [each.get("name") for each in properties]
        if not any(names):
            return None
        return np.array([name if isinstance(name, str) and name else None for name in names], object)[row]

    def _measurements(self, measured: list[Any], row: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Return a column for each name; objects with the same names are converted together."""
        if list in set(map(type, measured)):  # before version 0.4
            measured = [
                {pair["name"]: pair["value"] for pair in each} if isinstance(each, list) else each
                for each in measured
            ]
        rows_of: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, names in enumerate([tuple(each.keys()) if each else () for each in measured]):
            rows_of[names].append(number)
        rows_of.pop((), None)
        self._measured |= dict.fromkeys(chain.from_iterable(rows_of))
        if len(self._measured) > _MOST_MEASUREMENTS:
            raise ValueError(f"over {_MOST_MEASUREMENTS:,} names of measurements; are they ids?")
        columns: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.full(len(measured), np.nan))
        for names, rows in rows_of.items():
            values = _numbers([measured[number] for number in rows])
            for name, column in zip(names, values.T, strict=True):
                columns[name][rows] = column
        return {name: column[row] for name, column in columns.items()}


def _with_children(features: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield features, each followed by those nested in it, as QuPath exports a hierarchy."""
    for feature in features:
        yield feature
        properties = feature.get("properties") or {}
        if "childObjects" in properties or "children" in properties:
            yield from _with_children(properties.get("childObjects") or properties.get("children") or [])


def _kind(feature: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
    """Return the type of an object: an annotation, if nothing is said."""
    kind = properties.get("objectType")
    if kind is not None:
        return kind
    for key in ("object_type", "type"):
        if key in properties:
            return properties[key]
    name = feature.get("id")
    return name if isinstance(name, str) and name in _OLD_TYPES else "annotation"


def _numbers(measured: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Return the values of measurements of equal names, a row for each object."""
    values = list(chain.from_iterable(map(dict.values, measured)))
    if not set(map(type, values)) <= {int, float}:
        values = [_number(*pair) for each in measured for pair in each.items()]
    return np.array(values, np.float64).reshape(len(measured), -1)


def _number(name: str, value: Any) -> float:
    if value is None:
        return np.nan
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError(f"its measurement {name!r} is {value!r}, not a number")


def _places(
    shapes: Rings, outlines: Outlines, shape: NDArray[np.int64], depths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return for each cell the object it comes from, which of its points it is, and its coordinates."""
    is_point = depths[shape] < 3
    begin = shapes.rings[shapes.polygons[shapes.outlines]]
    number = np.where(is_point, np.diff(begin)[shape], ~np.isnan(outlines.places[shape, 0]))
    row = np.repeat(np.arange(len(shape)), number)
    nth = np.arange(len(row)) - np.repeat(offsets(number)[:-1], number)
    xy = outlines.places[shape[row]]
    xy[is_point[row]] = shapes.xy[(begin[shape[row]] + nth)[is_point[row]]]
    return row, nth, xy


def _some(shapes: NDArray[np.object_]) -> NDArray[np.object_] | None:
    return None if shapely.is_missing(shapes).all() else shapes


def _with_member(cells: Cells, own: dict[str, Any], reader: _Reader, where: str) -> Cells:
    """Return the cells with µm per pixel, all classes and their order, as our own member says."""
    try:
        named = [name for each in own.get("classes", ()) if (name := reader.class_name(each))]
        mpp = own.get("mpp")
        cells = cells.with_classes(dict.fromkeys([*named, *cells.classes]))
        return replace(cells, mpp=mpp and float(mpp))
    except _NOT_UNDERSTOOD as error:
        raise FormatError(where, f"its member {MEMBER!r} cannot be understood: {error}") from None
