"""QuPath's GeoJSON, from version 0.2 on, as a table of cells."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.formats.gathered import Row, cells_of
from sparseshot.cells.formats.geojson import FeatureStream
from sparseshot.cells.formats.options import (
    LONGEST_ID_BYTES,
    MEMBER,
    NAME,
    SCORE,
    OpenFile,
    ReadOptions,
    filled_ids,
    with_score,
)
from sparseshot.cells.table import GREY, KINDS, Cells
from sparseshot.errors import FormatError

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
_MOST_MEASUREMENTS = 1000
_MOST_NOTES = 100
_LONGEST_NOTE = 10_000
_NOT_UNDERSTOOD = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read a collection, an array of features or a single one; each point of a multipoint is a cell."""
    stream = FeatureStream(source.file, source.name)
    reader = _Reader(source.name, options)
    with _uncollected():
        tables = [reader.table(first, features) for first, features in stream]
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


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from looking for cycles in lists as they are made, which takes most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Reader:
    """Builds tables of features and keeps what they have in common.

    Attributes:
        classes: in the order of the file.
        colors: red, green and blue of the classes that have a colour.
        ids_are_numbers: whether all ids so far were whole numbers.
    """

    def __init__(self, where: str, options: ReadOptions) -> None:
        self.classes: dict[str, None] = {}
        self.colors: dict[str, tuple[int, int, int]] = {}
        self.ids_are_numbers = True
        self._where, self._options = where, options
        self._exhaustive = options.exhaustive_class.casefold()
        self._measured: dict[str, None] = {}

    def table(self, first: int, features: list[dict[str, Any]]) -> Cells:
        """Build the table of some features; ``first`` is the number of the first one in the file."""
        try:
            return self._table(features)
        except _NOT_UNDERSTOOD:  # one by one, to name the one to blame
            for number, feature in enumerate(features, first):
                try:
                    self._table([feature])
                except _NOT_UNDERSTOOD as error:
                    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                    what = f"feature {number} cannot be understood"
                    raise FormatError(self._where, f"{what}: {reason}") from None
            raise

    def _table(self, features: list[dict[str, Any]]) -> Cells:
        rows = [one for each in _with_children(features) if (one := self._row(each)) is not None]
        cells, row, nth = cells_of(rows, self.classes, self._options)
        return replace(cells, id=self._ids([each.own_id for each in rows], row, nth))

    def _row(self, feature: dict[str, Any]) -> Row | None:
        """Return the row of an object, or None for one that is no cell, which is counted."""
        properties = feature.get("properties") or {}
        # A bare geometry is an annotation to QuPath.
        geometry = feature["geometry"] if feature.get("type", "Feature") == "Feature" else feature
        kind = _kind(feature, properties)
        no_cell = _NO_CELLS.get(kind, _NO_CELLS.get(geometry and geometry["type"]))
        if no_cell is not None:
            self._options.repairs.count(no_cell, bool(no_cell))
            return None
        if geometry is None:
            raise TypeError('it has no geometry; export it again from QuPath with "Export all objects"')
        coordinates = _nested(geometry)
        name = self.class_name(properties.get("classification"))
        is_region = _LEVELS[geometry["type"]] >= 3 and (name or "").casefold() == self._exhaustive
        if name is not None and not is_region:
            self.classes[name] = None
        title = properties.get("name")
        title = title if isinstance(title, str) and title else None
        nucleus = feature.get("nucleusGeometry")
        return Row(
            name,
            0 if is_region else feature.get("id"),
            coordinates,
            geometry["type"],
            measured=self._numbers(properties.get("measurements") or {}),
            kind=_KINDS.get(kind, 1),
            title=title,
            nucleus=_nested(nucleus) if nucleus else (),
            notes=_notes(title, properties.get("metadata")) if is_region else {},
        )

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

    def _ids(self, ids: list[Any], row: NDArray[np.int64], nth: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """Return the id of each cell, with a number if it is one of several points; empty for none."""
        kinds = set(map(type, ids))
        if not kinds <= {str, int, float, bool, NoneType}:
            raise TypeError("its id is a list or an object")
        if kinds:
            self.ids_are_numbers &= kinds == {int} and max(map(abs, ids)) < 2**63
        own = [b"" if each is None or each in _OLD_TYPES else str(each).encode() for each in ids]
        if max(map(len, own), default=0) > LONGEST_ID_BYTES:
            raise ValueError(f"it has an id of more than {LONGEST_ID_BYTES} bytes")
        names = [own[k] for k in row.tolist()]
        if (nth >= 0).any():
            self.ids_are_numbers = False
            pairs = zip(names, nth.tolist(), strict=True)
            names = [b"%b#%d" % (name, k) if name and k >= 0 else name for name, k in pairs]
        return np.array(names, np.bytes_)

    def _numbers(self, measured: Any) -> dict[str, Any]:
        if isinstance(measured, list):  # before version 0.4
            measured = {each["name"]: each["value"] for each in measured}
        if not self._measured.keys() >= measured.keys():
            self._measured |= dict.fromkeys(measured)
        if len(self._measured) > _MOST_MEASUREMENTS:
            raise ValueError(f"over {_MOST_MEASUREMENTS:,} names of measurements; are they ids?")
        return measured  # type: ignore[no-any-return]


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


def _nested(geometry: Any) -> Any:
    """Return the coordinates of a geometry, nested as those of a multipolygon."""
    kind, coordinates = geometry["type"], geometry["coordinates"]
    if kind not in _LEVELS:
        raise TypeError(f"it has a geometry of type {kind!r}; known are {', '.join(_LEVELS)}")
    if coordinates == []:
        return coordinates
    for _ in range(4 - _LEVELS[kind]):
        coordinates = [coordinates]
    return coordinates


def _notes(name: str | None, metadata: Any) -> dict[str, str]:
    """Return the name and the texts among the metadata of a region."""
    texts = {
        key: value
        for key, value in (metadata.items() if isinstance(metadata, dict) else ())
        if isinstance(value, str) and key != NAME
    }
    if len(texts) > _MOST_NOTES or any(len(text) > _LONGEST_NOTE for text in texts.values()):
        raise ValueError(f"its region has over {_MOST_NOTES} notes, or one of over {_LONGEST_NOTE:,} letters")
    return ({NAME: name} if name else {}) | texts


def _with_member(cells: Cells, own: dict[str, Any], reader: _Reader, where: str) -> Cells:
    """Return the cells with µm per pixel, all classes and their order, as our own member says."""
    try:
        named = [name for each in own.get("classes", ()) if (name := reader.class_name(each))]
        mpp = own.get("mpp")
        cells = cells.with_classes(dict.fromkeys([*named, *cells.classes]))
        return replace(cells, mpp=mpp and float(mpp))
    except _NOT_UNDERSTOOD as error:
        raise FormatError(where, f"its member {MEMBER!r} cannot be understood: {error}") from None
