"""Cells gathered one after another from a file, and built into a table at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.columns import as_ids
from sparseshot.cells.formats.options import LONGEST_ID_BYTES, ReadOptions, with_score
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, build_outlines
from sparseshot.cells.rings import Rings, expanded, offsets
from sparseshot.cells.table import GREY, Cells

Color = tuple[int, int, int]
_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class Row(NamedTuple):
    """An object of a file: a cell, or a cell for each of its points.

    Attributes:
        name: of its class; None for unclassified.
        own_id: as it is in the file.
        coordinates: nested as those of a multipolygon; points are those of one ring.
        geometry: name of its geometry in GeoJSON.
        shape: a valid outline, instead of coordinates.
        score: NaN if there is none.
        measured: numbers by name, also as the texts that stand for NaN and infinity.
        kind: index into :data:`~sparseshot.cells.table.KINDS`, or None.
        title: name that a person gave to it.
        nucleus: nested as ``coordinates``.
        notes: texts, if it is a region.
    """

    name: str | None
    own_id: Any
    coordinates: Sequence[Any]
    geometry: str = "Polygon"
    shape: shapely.Geometry | None = None
    score: float = np.nan
    measured: Mapping[str, Any] = MappingProxyType({})
    kind: int | None = None
    title: str | None = None
    nucleus: Sequence[Any] = ()
    notes: Mapping[str, str] = MappingProxyType({})


def cells_of(
    rows: list[Row], classes: Mapping[str, None], options: ReadOptions
) -> tuple[Cells, NDArray[np.int64], NDArray[np.int64]]:
    """Build a table without ids; outlines of the exhaustive class become regions.

    Args:
        rows: the objects.
        classes: the known classes; others follow, in the order of the rows.
        options: has the name of the exhaustive class, and the count of repairs.

    Returns:
        The table, the row of each cell, and its number among the points of a multipoint, -1 for others.

    Raises:
        TypeError: coordinates or measurements are not what they should be.
    """
    repairs, exhaustive = options.repairs, options.exhaustive_class.casefold()
    try:
        shapes = flat([*(each.coordinates for each in rows), *(each.nucleus for each in rows)])
    except TypeError:
        if len(rows) == 1:
            raise TypeError(f"its coordinates are not those of a {rows[0].geometry}") from None
        raise
    begin = shapes.rings[shapes.polygons[shapes.outlines]]
    points = np.diff(begin)
    of_rows, of_nuclei = slice(len(rows)), slice(len(rows), None)
    is_point = np.array([each.geometry.endswith("Point") for each in rows], bool)
    shaped = {k: each.shape for k, each in enumerate(rows) if each.shape is not None}
    repairs.count("empty geometries left out", (points[of_rows] == 0).sum() - len(shaped))
    wanted = points > 0
    wanted[of_rows] &= ~is_point
    built, places = build_outlines(shapes, repairs, wanted=wanted)
    outlines, nuclei = built[of_rows], built[of_nuclei]
    for k, shape in shaped.items():
        outlines[k], places[k] = shape, shape.centroid.coords[0]
    is_whole = ~shapely.is_missing(outlines)
    is_region = np.array([(each.name or "").casefold() == exhaustive for each in rows], bool) & ~is_point

    # A multipoint becomes several cells.
    row, nth = expanded(np.where(is_point, points[of_rows], is_whole))
    xy = places[row]
    xy[is_point[row]] = shapes.xy[(begin[row] + nth)[is_point[row]]]
    finite = (np.abs(xy) <= FARTHEST_PX).all(axis=1)
    repairs.count(NOT_FINITE, (~finite).sum())
    kept = finite & ~is_region[row]
    row, nth, xy = row[kept], nth[kept], xy[kept]
    several = np.array([each.geometry == "MultiPoint" for each in rows], bool)[row]

    names = [rows[k].name for k in row.tolist()]
    known = [name for name in classes if name.casefold() != exhaustive or name in names]
    number = {name: k for k, name in enumerate(dict.fromkeys([*known, *filter(None, names)]))}
    kinds, titles = [each.kind for each in rows], [each.title for each in rows]
    notes = [each.notes for each in compress(rows, is_region & is_whole)]
    cells = Cells(
        xy,
        classes=number,
        label=[number.get(name or "", -1) for name in names],
        outline=_some(outlines[row]),
        regions=outlines[is_region & is_whole],
        region_notes=notes if any(notes) else None,
        measurements=_measurements([each.measured for each in rows], row),
        kind=np.array(kinds, np.uint8)[row] if rows and None not in kinds else None,
        nucleus=_some(nuclei[row]),
        name=np.array(titles, object)[row] if any(titles) else None,
    )
    scores = np.array([each.score for each in rows], np.float64)
    return with_score(cells, scores[row]), row, np.where(several, nth, -1)


def flat(shapes: list[Any]) -> Rings:
    """Return coordinates, nested as those of multipolygons, as flat arrays; null is NaN.

    >>> flat([[[[[1, 2], [3, 4], [5, 6, 7]]]], []])
    Rings(xy=array([[1., 2.],
           [3., 4.],
           [5., 6.]]), rings=array([0, 3]), polygons=array([0, 1]), outlines=array([0, 1, 1]))

    Raises:
        TypeError: they are not nested so.
    """
    parts, ends = shapes, []
    for _ in range(3):
        ends.append(offsets(list(map(len, _lists(parts)))))
        parts = list(chain.from_iterable(parts))
    sizes = set(map(len, _lists(parts)))
    if sizes - {2}:
        if min(sizes) < 2:
            raise TypeError("a position has no x and y")
        parts = [position[:2] for position in parts]
    numbers = list(chain.from_iterable(parts))
    if not set(map(type, numbers)) <= {float, int, NoneType}:
        raise TypeError("a coordinate is no number")
    outlines, polygons, rings = ends
    return Rings(np.array(numbers, np.float64).reshape(-1, 2), rings, polygons, outlines)


def _lists(parts: list[Any]) -> list[Any]:
    if not set(map(type, parts)) <= {list, tuple}:
        raise TypeError("coordinates are nested otherwise")
    return parts


def _some(shapes: NDArray[np.object_]) -> NDArray[np.object_] | None:
    return None if shapely.is_missing(shapes).all() else shapes


def _measurements(
    measured: list[Mapping[str, Any]], row: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Return a column for each name."""
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(measured)):
        values = [each.get(name) for each in measured]
        if not set(map(type, values)) <= {float, int, NoneType}:
            values = [_number(name, value) for value in values]
        columns[name] = np.array(values, np.float64)[row]
    return columns


def _number(name: str, value: Any) -> float | None:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, int | float | None) and not isinstance(value, bool):
        return value
    raise TypeError(f"its measurement {name!r} is {value!r}, not a number")


@dataclass
class Gathered:
    """Rows of a file, and its classes.

    Attributes:
        rows: the objects.
        classes: all classes of the file, in their order.
        colors: colours of the classes that have one.
    """

    rows: list[Row] = field(default_factory=list)
    classes: dict[str, None] = field(default_factory=dict)
    colors: dict[str, Color] = field(default_factory=dict)

    def declare(self, name: str, color: Color | None) -> None:
        """Note a class and its colour, whether or not it has cells."""
        if name:
            self.classes[name] = None
            if color:
                self.colors.setdefault(name, color)

    def cells(self, options: ReadOptions, *, mpp: float | None = None, ids: list[Any] | None = None) -> Cells:
        """Build the table; a file that says nothing about classes has cells of one class.

        Args:
            options: of reading.
            mpp: µm per level-0 pixel.
            ids: of the rows, instead of their own.
        """
        cells, row, _ = cells_of(self.rows, self.classes, options)
        if not cells.classes:
            cells = replace(cells, classes=("cell",), label=np.zeros(len(cells), np.int16))
        own = [each.own_id for each in self.rows] if ids is None else ids
        colors = tuple(self.colors.get(name, GREY) for name in cells.classes) if self.colors else None
        return replace(cells, id=_ids([own[k] for k in row.tolist()], options), mpp=mpp, colors=colors)


def _ids(ids: list[Any], options: ReadOptions) -> NDArray[Any] | None:
    """Return ids if each cell has one of its own: whole numbers if all are."""
    texts = ["" if each is None else str(each) for each in ids]
    too_long = sum(len(text.encode()) > LONGEST_ID_BYTES for text in texts)
    options.repairs.count(f"ids longer than {LONGEST_ID_BYTES} bytes left out with all others", too_long)
    if not texts or too_long or "" in texts:
        return None
    if all(re.fullmatch(r"0|[1-9]\d{0,17}", text, re.ASCII) for text in texts):
        return np.array(texts).astype(np.int64)
    return as_ids(texts)


def first_unique(*choices: list[Any]) -> list[Any]:
    """Return the first list of ids in which none repeats; if there is none, no ids.

    >>> first_unique(["1", "1"], ["1-1", "2-1"])
    ['1-1', '2-1']
    """
    return next((ids for ids in choices if len(set(ids)) == len(ids)), [None] * len(choices[0]))


def web_color(text: str) -> Color | None:
    """Return the colour that ``#3ab7dd`` stands for.

    >>> web_color("#3ab7dd")
    (58, 183, 221)
    """
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return None
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
