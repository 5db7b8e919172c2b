"""QuPath's GeoJSON, from version 0.2 on, as a table of cells."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES, SCORE, filled_ids, with_score
from sparseshot.cells.formats.geojson_stream import Batch, FeatureStream, parsed
from sparseshot.cells.formats.options import MEMBER, OpenFile, ReadOptions
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, Outlines, build_outlines
from sparseshot.cells.rings import Rings, expanded
from sparseshot.cells.table import GREY, KINDS, Cells
from sparseshot.errors import FormatError

NAME = "name"
"""Note of a region that is the name of its annotation in QuPath; the others are its metadata."""

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
_LEVELS = {"Point": 1, "MultiPoint": 2, "Polygon": 3, "MultiPolygon": 4}
_REGION = -2
_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_MOST_MEASUREMENTS = 1000
_MOST_NOTES = 100
_LONGEST_NOTE = 10_000
_MOST_VALUES = 1 << 23
"""Most values of a feature beside its coordinates; each becomes a Python object."""
_NOT_UNDERSTOOD = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read a collection, an array of features or a single one; each point of a multipoint is a cell."""
    stream = FeatureStream(source.file, source.name)
    reader = _Reader(stream.token, source.name, options)
    collects = gc.isenabled()
    gc.disable()  # looking for cycles in millions of outlines takes a third of the time
    try:
        tables = [reader.table(batch) for batch in stream]
    finally:
        if collects:
            gc.enable()
    cells = Cells.concatenate(tables or [Cells([], classes=(), id=np.empty(0, "S1"))])
    del tables
    own = stream.frame.get(MEMBER) if isinstance(stream.frame, dict) else None
    if isinstance(own, dict):
        cells = _with_member(cells, own, reader, source.name)
    measurements = dict(cells.measurements)
    score = measurements.pop(SCORE, None)
    ids = filled_ids(cells.id, options.repairs)
    colors = reader.colors
    cells = replace(
        cells,
        colors=tuple(colors.get(name, GREY) for name in cells.classes) if colors else None,
        id=ids.astype(np.int64) if ids is not None and reader.ids_are_numbers else ids,
        measurements=measurements,
    )
    return with_score(cells, score)


class _Object(NamedTuple):
    """An object of a skeleton that may be a cell.

    Attributes:
        kind, label: its codes in the table; a label of -2 is an exhaustive region.
        level, shape: nesting of its coordinates, and their number in the feature.
        nucleus: number of the coordinates of its nucleus, -1 for none.
        id: its id; None if it was taken out of the feature.
        name: given by a person.
        measured: numbers by name.
        taken: numbers of the feature that belong to a name.
        notes: texts of a region.
    """

    kind: int
    label: int
    level: int
    shape: int
    nucleus: int
    id: bytes | None
    name: str | None
    measured: dict[str, float]
    taken: dict[str, int]
    notes: dict[str, str]


class _Reader:
    """Builds tables of batches and keeps what they have in common.

    Attributes:
        classes: number of each class, in the order of the file.
        colors: red, green and blue of the classes that have a colour.
        ids_are_numbers: whether all ids so far were whole numbers.
    """

    def __init__(self, token: str, where: str, options: ReadOptions) -> None:
        self.classes: dict[str, int] = {}
        self.colors: dict[str, tuple[int, int, int]] = {}
        self.ids_are_numbers = True
        self._token = token
        self._where = where
        self._exhaustive = options.exhaustive_class.casefold()
        self._repairs = options.repairs
        self._measured: dict[str, None] = {}

    def table(self, batch: Batch) -> Cells:
        """Build the table of a batch; a multipoint becomes several cells."""
        objects, feature, which = self._objects(batch)
        _, _, _, shapes_before, numbers_before = batch.found.features[:-1].T
        numbers = batch.numbers(self._where)
        shapes = batch.shapes(numbers)
        kind, label, level, shape, nucleus = np.array([each[:5] for each in objects], int).reshape(-1, 5).T
        shape = shapes_before[feature] + shape[which]
        nucleus = np.where(nucleus[which] < 0, -1, shapes_before[feature] + nucleus[which])
        kind, label, level = kind[which], label[which], level[which]

        wanted = np.zeros(len(shapes.outlines) - 1, bool)
        wanted[shape[level >= 3]] = True
        wanted[nucleus[nucleus >= 0]] = True
        outlines = build_outlines(shapes, self._repairs, wanted=wanted)
        regions = outlines.shapes[shape[label == _REGION]]
        whole = ~shapely.is_missing(regions)
        notes = [objects[k].notes for k in which[label == _REGION][whole].tolist()]
        row, nth, xy = _places(shapes, outlines, shape, is_point=level < 3)
        finite = (np.abs(xy) <= FARTHEST_PX).all(axis=1)
        self._repairs.count(NOT_FINITE, (~finite).sum())
        kept = finite & (label[row] != _REGION)
        row, nth, xy = row[kept], nth[kept], xy[kept]
        nuclei = outlines.shapes[nucleus[row]]
        nuclei[nucleus[row] < 0] = None
        feature, which = feature[row], which[row]
        names = np.array([each.name for each in objects], object)[which]
        return Cells(
            xy,
            classes=tuple(self.classes),
            label=label[row],
            outline=_some(outlines.shapes[shape[row]]),
            id=self._ids(batch, objects, feature, which, np.where(level[row] == 2, nth, -1)),
            regions=regions[whole],
            region_notes=notes if any(notes) else None,
            measurements=self._measurements(objects, which, numbers, numbers_before[feature]),
            kind=kind[row],
            nucleus=_some(nuclei),
            name=names if any(names) else None,
        )

    def _objects(self, batch: Batch) -> tuple[list[_Object], NDArray[np.int64], NDArray[np.int64]]:
        """Return the objects of all skeletons, and for each object of the batch its feature and skeleton."""
        number: dict[bytes, int] = {}
        of_feature = np.array([number.setdefault(each, len(number)) for each in batch.skeletons()], np.int64)
        _, first, times = np.unique(of_feature, return_index=True, return_counts=True)
        objects: list[_Object] = []
        ends = [0]
        for skeleton, feature, count in zip(number, first, times, strict=True):
            try:
                objects += self._of_skeleton(skeleton, count)
            except _NOT_UNDERSTOOD as error:
                reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                what = f"feature {batch.first + feature} cannot be understood"
                raise FormatError(self._where, f"{what}: {reason}") from None
            ends.append(len(objects))
        feature, nth = expanded(np.diff(ends)[of_feature])
        return objects, feature, np.array(ends)[of_feature[feature]] + nth

    def _of_skeleton(self, skeleton: bytes, times: int) -> Iterator[_Object]:
        """Yield the objects of a skeleton that may be cells; count the others for each time it occurs."""
        if len(skeleton) > _MOST_VALUES and sum(map(skeleton.count, (b"[", b"{", b","))) > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        for feature in _with_children([parsed(skeleton)]):
            properties = feature.get("properties") or {}
            # A bare geometry is an annotation to QuPath.
            geometry = feature["geometry"] if feature.get("type", "Feature") == "Feature" else feature
            kind = _kind(feature, properties)
            no_cell = _NO_CELLS.get(kind, _NO_CELLS.get(geometry and geometry["type"]))
            if no_cell is not None:
                self._repairs.count(no_cell, times if no_cell else 0)
                continue
            if geometry is None:
                raise TypeError('it has no geometry; export it again from QuPath with "Export all objects"')
            level, shape = self._shape(geometry)
            name = self.class_name(properties.get("classification"))
            label = -1
            if level >= 3 and (name or "").casefold() == self._exhaustive:
                label = _REGION
            elif name is not None:
                label = self.classes.setdefault(name, len(self.classes))
            own_id = b"" if label == _REGION else self._id(feature.get("id"))
            own_name = properties.get("name")
            measured, taken = self._numbers(properties.get("measurements") or {})
            nucleus = feature.get("nucleusGeometry")
            inner = self._shape(nucleus)[1] if nucleus else -1
            if level == 0:
                self._repairs.count("empty geometries left out", times)
                continue
            own_name = own_name if isinstance(own_name, str) and own_name else None
            notes = self._notes(own_name, properties.get("metadata")) if label == _REGION else {}
            codes = (_KINDS.get(kind, 1), label, level, shape, inner)
            yield _Object(*codes, own_id, own_name, measured, taken, notes)

    def _notes(self, name: str | None, metadata: Any) -> dict[str, str]:
        """Return the name and the texts among the metadata of a region."""
        texts = {
            key: value
            for key, value in (metadata.items() if isinstance(metadata, dict) else ())
            if isinstance(value, str) and key != NAME and self._placeholder(value) is None
        }
        if len(texts) > _MOST_NOTES or any(len(text) > _LONGEST_NOTE for text in texts.values()):
            raise ValueError(
                f"its region has over {_MOST_NOTES} notes, or one of over {_LONGEST_NOTE:,} letters"
            )
        return ({NAME: name} if name else {}) | texts

    def _placeholder(self, value: Any) -> tuple[int, int] | None:
        """Return level and number of a placeholder."""
        if not isinstance(value, str) or not value.startswith(self._token):
            return None
        digits = value.removeprefix(self._token)
        return int(digits[0]), int(digits[1:])

    def _shape(self, geometry: Any) -> tuple[int, int]:
        """Return level and number of the coordinates of a geometry, which must be those of its type."""
        kind, coordinates = geometry["type"], geometry["coordinates"]
        if kind not in _LEVELS:
            raise TypeError(f"it has a geometry of type {kind!r}; known are {', '.join(_LEVELS)}")
        level, number = self._placeholder(coordinates) or (-1, -1)
        if level not in (0, _LEVELS[kind]):
            raise TypeError(f"its coordinates are not those of a {kind}")
        return level, number

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

    def _id(self, own_id: Any) -> bytes | None:
        """Return an id as text, empty for an object without one; None if it was taken out."""
        if not isinstance(own_id, str | int | float | None):
            raise TypeError(f"its id is a {type(own_id).__name__}")
        placeholder = self._placeholder(own_id)
        is_number = placeholder[0] == 0 if placeholder else isinstance(own_id, int) and abs(own_id) < 2**63
        self.ids_are_numbers &= is_number
        return (
            None if placeholder else b"" if own_id is None or own_id in _OLD_TYPES else str(own_id).encode()
        )

    def _ids(
        self,
        batch: Batch,
        objects: list[_Object],
        feature: NDArray[np.int64],
        which: NDArray[np.int64],
        nth: NDArray[np.int64],
    ) -> NDArray[np.bytes_]:
        """Return the id of each cell, with a number if it is one of several points."""
        taken, own = batch.ids(), [each.id for each in objects]
        pairs = zip(feature.tolist(), which.tolist(), strict=True)
        ids = [taken[k] if (given := own[j]) is None else given for k, j in pairs]
        if (nth >= 0).any():
            self.ids_are_numbers = False
            pairs = zip(ids, nth.tolist(), strict=True)
            ids = [b"%b#%d" % (name, k) if name and k >= 0 else name for name, k in pairs]
        longest = max(map(len, ids), default=0)
        if longest > LONGEST_ID_BYTES:
            number = batch.first + feature[np.argmax([len(each) for each in ids])]
            raise FormatError(
                self._where, f"feature {number} has an id of more than {LONGEST_ID_BYTES} bytes"
            )
        return np.array(ids, np.bytes_)

    def _numbers(self, measured: Any) -> tuple[dict[str, float], dict[str, int]]:
        """Return the measurements of an object that stand in its skeleton, and the numbers of the others."""
        if isinstance(measured, list):  # before version 0.4
            measured = {each["name"]: each["value"] for each in measured}
        self._measured |= dict.fromkeys(measured)
        if len(self._measured) > _MOST_MEASUREMENTS:
            raise ValueError(f"over {_MOST_MEASUREMENTS:,} names of measurements; are they ids?")
        placeholders = {name: self._placeholder(value) for name, value in measured.items()}
        taken = {name: each[1] for name, each in placeholders.items() if each}
        return {name: _number(name, measured[name]) for name in measured if name not in taken}, taken

    def _measurements(
        self,
        objects: list[_Object],
        which: NDArray[np.int64],
        numbers: NDArray[np.float64],
        before: NDArray[np.int64],
    ) -> dict[str, NDArray[np.float64]]:
        """Return a column for each name; ``before`` is the number of numbers before each cell's feature."""
        columns = {}
        for name in dict.fromkeys(name for each in objects for name in (*each.measured, *each.taken)):
            nth = np.array([each.taken.get(name, -1) for each in objects], np.int64)[which]
            columns[name] = np.array([each.measured.get(name, np.nan) for each in objects])[which]
            columns[name][nth >= 0] = numbers[(before + nth)[nth >= 0]]
        return columns


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


def _number(name: str, value: Any) -> float:
    if value is None:
        return np.nan
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError(f"its measurement {name!r} is {value!r}, not a number")


def _places(
    shapes: Rings, outlines: Outlines, shape: NDArray[np.int64], *, is_point: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return for each cell the object it comes from, which of its points it is, and its coordinates."""
    begin = shapes.rings[shapes.polygons[shapes.outlines]]
    row, nth = expanded(np.where(is_point, np.diff(begin)[shape], ~np.isnan(outlines.places[shape, 0])))
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
