"""What the form of a feature says of its objects, as QuPath itself understands it, from version 0.2 on."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES
from sparseshot.cells.formats.json_stream import Batch, parsed
from sparseshot.cells.rings import offsets
from sparseshot.cells.table import KINDS
from sparseshot.errors import FormatError

_KINDS = {name: code for code, name in enumerate(KINDS)} | {
    "PathDetectionObject": 0,
    "PathAnnotationObject": 1,
    "PathCellObject": 2,
}
_NO_CELLS = {
    "tile": "tiles left out",
    "PathTileObject": "tiles left out",
    "tmaCore": "TMA cores left out",
    "tma_core": "TMA cores left out",
    "TMACoreObject": "TMA cores left out",
    "root": None,  # holds the others and is nothing itself
    "PathRootObject": None,
    "LineString": "lines left out",
    "MultiLineString": "lines left out",
    "GeometryCollection": "geometry collections left out",
}
# Version 0.2 wrote the type of an object as its id.
_OLD_TYPES = {name for name in (*_KINDS, *_NO_CELLS) if name.endswith("Object")}
_DEPTHS = {"Point": 1, "MultiPoint": 2, "Polygon": 3, "MultiPolygon": 4}
_MOST_MEASUREMENTS = 1000
_MOST_FORMS = 10_000


class Objects(NamedTuple):
    """Objects as columns: ``feature`` and ``shape`` in the batch, ``nucleus`` -1 for none, and so on."""

    feature: NDArray[np.int64]
    shape: NDArray[np.int64]
    nucleus: NDArray[np.int64]
    label: NDArray[np.int64]
    kind: NDArray[np.int64]
    layout: NDArray[np.int64]
    is_region: NDArray[np.bool_]
    id: NDArray[np.bytes_]

    def only(self, rows: NDArray[np.bool_]) -> "Objects":
        """Return the objects of a mask."""
        columns: Any = (column[rows] for column in self)
        return Objects(*columns)


class Forms:
    """The forms met so far in a file, each understood once, with the names in them.

    Attributes:
        classes: number of each class, in the order they came.
        colors: red, green and blue of the classes that have a colour.
        layouts: names of measurements with the number of their value, for each layout of a feature.
        ids_are_numbers: whether no id so far was a text.
        left_out: what was met that is no cell, one entry for each.
    """

    def __init__(self, where: str, mark: str, exhaustive_class: str) -> None:
        self.classes: dict[str, int] = {}
        self.colors: dict[str, tuple[int, int, int]] = {}
        self.layouts: dict[tuple[tuple[str, int], ...], int] = {}
        self.ids_are_numbers = True
        self.left_out: list[str] = []
        self._where = where
        self._mark = mark
        self._exhaustive = exhaustive_class
        self._known: dict[bytes, tuple[int, ...]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._own_ids: dict[int, bytes] = {}
        self._no_cells: dict[int, str] = {}

    def objects(self, batch: Batch) -> Objects:
        """Return the objects of a batch."""
        if len(self._known) > _MOST_FORMS:  # features that are all different; no use to keep their forms
            for kept in (self._known, self._rows, self._own_ids, self._no_cells):
                kept.clear()
        known = self._known
        for number, text in zip(batch.examples.tolist(), batch.forms, strict=True):
            if text not in known:
                known[text] = self._understood(text, batch.first + number)
        codes = [known[text] for text in batch.forms]
        counts = np.array([len(of_form) for of_form in codes], np.int64)
        feature = np.repeat(np.arange(len(batch.form)), counts[batch.form])
        nth = np.arange(len(feature)) - np.repeat(offsets(counts[batch.form])[:-1], counts[batch.form])
        flat = np.array([each for of_form in codes for each in of_form], np.int64)
        code = flat[offsets(counts)[batch.form[feature]] + nth]
        if self._no_cells:
            gone = np.isin(code, list(self._no_cells))
            self.left_out += [self._no_cells[each] for each in code[gone].tolist()]
            code, feature = code[~gone], feature[~gone]
        shape, nucleus, label, kind, layout, region = np.array(self._rows or [(0,) * 6])[code].T
        ids = batch.ids[feature]
        if self._own_ids:
            pairs = zip(code.tolist(), ids.tolist(), strict=True)
            ids = np.array([self._own_ids.get(each, name) for each, name in pairs], np.bytes_)
        first = batch.first_shape[feature]
        nucleus = np.where(nucleus < 0, -1, first + nucleus)
        return Objects(feature, first + shape, nucleus, label, kind, layout, region == 1, ids)

    def _understood(self, text: bytes, number: int) -> tuple[int, ...]:
        feature = parsed(text, self._where, f"feature {number}")
        try:
            return tuple([self._object(each, each is feature) for each in _with_children(feature)])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise FormatError(self._where, f"feature {number} cannot be understood: {reason}") from None

    def _object(self, feature: Mapping[str, Any], id_taken_out: bool) -> int:
        code = len(self._rows)
        properties = feature.get("properties") or {}
        kind = _kind(feature, properties)
        # A bare geometry is an annotation to QuPath.
        geometry = feature["geometry"] if feature.get("type", "Feature") == "Feature" else feature
        no_cell = kind if kind in _NO_CELLS else geometry and geometry["type"]
        if no_cell in _NO_CELLS:
            self._no_cells[code] = _NO_CELLS[no_cell] or ""
            self._rows.append((0,) * 6)
            return code
        if geometry is None:
            raise TypeError('it has no geometry; export it again from QuPath with "Export all objects"')
        name = self.class_name(properties.get("classification"))
        is_region = name == self._exhaustive and geometry["type"].endswith("Polygon")
        core = feature.get("nucleusGeometry")
        row = (
            self._shape(geometry),
            -1 if core is None else self._shape(core),
            -1 if name is None or is_region else self._class(name),
            _KINDS.get(kind, 1),
            self._layout(properties.get("measurements")),
            int(is_region),
        )
        if not is_region:
            self._note_id(code, feature.get("id", ""), id_taken_out)
        self._rows.append(row)
        return code

    def class_name(self, classification: Any) -> str | None:
        """Return the name of a class: a string, or an object with a name, or with names, in any version."""
        if classification is None or isinstance(classification, str):
            return classification or None
        name = classification.get("name")
        if name is None and "names" in classification:
            name = ": ".join(classification["names"])
        if classification.get("parentClass"):
            name = f"{self.class_name(classification['parentClass'])}: {name}"
        if not isinstance(name, str):
            raise TypeError(f"its class is called {name!r}")
        color = classification.get("color", classification.get("colorRGB"))
        if isinstance(color, int):  # packed as alpha, red, green, blue
            self.colors.setdefault(name, (color >> 16 & 255, color >> 8 & 255, color & 255))
        elif color is not None:
            red, green, blue = color
            self.colors.setdefault(name, (int(red), int(green), int(blue)))
        return name

    def _class(self, name: str) -> int:
        number = self.classes.setdefault(name, len(self.classes))
        if number > np.iinfo(np.int16).max:
            raise ValueError(f"it has class number {number:,}; are their names ids?")
        return number

    def _layout(self, measurements: Any) -> int:
        """Return number to names of measurements and where their values are; before 0.4 they were a list."""
        if isinstance(measurements, list):
            measurements = {each["name"]: each["value"] for each in measurements}
        pairs = []
        for name, value in (measurements or {}).items():
            taken = self._taken(value)
            if taken is not None:
                pairs.append((name, taken))
            elif value is not None:
                raise TypeError(f"its measurement {name!r} is {value!r}, not a number")
        if len(pairs) > _MOST_MEASUREMENTS or len(self.layouts) > _MOST_MEASUREMENTS:
            raise ValueError(f"it has {len(pairs):,} measurements, unlike others; are their names ids?")
        return self.layouts.setdefault(tuple(pairs), len(self.layouts))

    def _taken(self, value: Any) -> int | None:
        """Return the number that stands for what was taken out, if it does."""
        if isinstance(value, str) and value.startswith(self._mark):
            return int(value.removeprefix(self._mark))
        return None

    def _shape(self, geometry: Mapping[str, Any]) -> int:
        """Return the number of the shape of a geometry, after a look whether it can be one of its type."""
        kind, taken = geometry["type"], self._taken(geometry["coordinates"])
        if kind not in _DEPTHS:
            raise TypeError(f"it has a geometry of type {kind!r}; known are {', '.join(_DEPTHS)}")
        if taken is None or taken % 10 not in {0, _DEPTHS[kind]}:
            raise TypeError(f"its coordinates are not those of a {kind}")
        return taken // 10

    def _note_id(self, code: int, name: Any, taken_out: bool) -> None:
        if taken_out and name == 0:
            return
        if name not in ("", None) and name not in _OLD_TYPES:
            self._own_ids[code] = str(name).encode()
        if len(self._own_ids.get(code, b"")) > LONGEST_ID_BYTES:
            raise ValueError(f"its id is longer than {LONGEST_ID_BYTES} bytes")
        self.ids_are_numbers &= type(name) is int and abs(name) < 2**63


def _with_children(feature: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a feature and those nested in it, as QuPath exports a hierarchy."""
    waiting = [feature]
    while waiting:
        each = waiting.pop()
        yield each
        properties = each.get("properties") or {}
        waiting += reversed(properties.get("childObjects") or properties.get("children") or ())


def _kind(feature: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    for key in ("objectType", "object_type", "type"):
        if key in properties:
            return str(properties[key])
    name = feature.get("id")
    return name if isinstance(name, str) and name in _OLD_TYPES else "annotation"
