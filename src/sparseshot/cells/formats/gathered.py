"""Cells gathered one after another from a file, and built into a table at once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.options import LONGEST_ID_BYTES, ReadOptions, with_score
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, build_outlines
from sparseshot.cells.rings import Rings, offsets
from sparseshot.cells.table import GREY, Cells

Color = tuple[int, int, int]
Ring = NDArray[np.float64]


@dataclass
class Gathered:
    """Rows collected for a table; a cell is a list of polygons, which are lists of rings, or a point.

    Attributes:
        polygons: of each cell; empty for a point or a shape.
        shapes: valid outlines of the rows that have one instead of polygons.
        points: coordinates of the rows that are points.
        names: class of each cell, None for unclassified.
        ids, scores, measured: of each cell.
        classes: all classes of the file, in their order.
        colors: colours of the classes that have one.
    """

    polygons: list[list[list[Ring]]] = field(default_factory=list)
    shapes: dict[int, shapely.Geometry] = field(default_factory=dict)
    points: dict[int, Any] = field(default_factory=dict)
    names: list[str | None] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    measured: list[Mapping[str, float]] = field(default_factory=list)
    classes: dict[str, None] = field(default_factory=dict)
    colors: dict[str, Color] = field(default_factory=dict)

    def add(
        self,
        name: str | None,
        own_id: Any,
        *,
        polygons: list[list[Ring]] | None = None,
        shape: shapely.Geometry | None = None,
        point: Any = None,
        score: float = np.nan,
        measured: Mapping[str, float] | None = None,
    ) -> None:
        """Add a cell with either polygons, a valid shape, or a point."""
        row = len(self.names)
        if shape is not None:
            self.shapes[row] = shape
        if point is not None:
            self.points[row] = point
        self.polygons.append(polygons or [])
        self.names.append(name)
        self.ids.append(own_id)
        self.scores.append(score)
        self.measured.append(measured or {})

    def declare(self, name: str, color: Color | None) -> None:
        """Note a class and its colour, whether or not it has cells."""
        if name:
            self.classes[name] = None
            if color:
                self.colors.setdefault(name, color)

    def cells(self, options: ReadOptions, *, mpp: float | None = None) -> Cells:
        """Build the table; outlines of the exhaustive class become regions."""
        polygons = list(chain.from_iterable(self.polygons))
        rings = list(chain.from_iterable(polygons))
        source = Rings(
            np.concatenate([np.empty((0, 2)), *rings]),
            offsets([len(ring) for ring in rings]),
            offsets([len(polygon) for polygon in polygons]),
            offsets([len(of_cell) for of_cell in self.polygons]),
        )
        wanted = np.array([bool(of_cell) for of_cell in self.polygons], bool)
        shapes, places = build_outlines(source, options.repairs, wanted=wanted)
        for row, shape in self.shapes.items():
            shapes[row], places[row] = shape, shapely.centroid(shape).coords[0]
        for row, point in self.points.items():
            places[row] = point
        finite = np.abs(places).max(axis=1, initial=0) <= FARTHEST_PX
        options.repairs.count(NOT_FINITE, sum(not finite[row] for row in self.points))
        outlined = ~shapely.is_missing(shapes)
        exhaustive = options.exhaustive_class.casefold()
        is_region = np.array([(name or "").casefold() == exhaustive for name in self.names], bool) & outlined
        rows = np.flatnonzero(finite & ~is_region).tolist()
        names = [self.names[row] for row in rows]
        declared = [name for name in self.classes if name.casefold() != exhaustive or name in names]
        classes = tuple(dict.fromkeys([*declared, *filter(None, names)]))
        if not classes:  # the file says nothing about classes
            classes, names = ("cell",), ["cell"] * len(rows)
        number = {name: k for k, name in enumerate(classes)}
        scores = np.array(self.scores, np.float64)[rows]
        columns = dict.fromkeys(name for row in rows for name in self.measured[row])
        cells = Cells(
            places[rows],
            classes=classes,
            label=[number.get(name or "", -1) for name in names],
            outline=shapes[rows] if outlined[rows].any() else None,
            id=_ids([self.ids[row] for row in rows], options),
            mpp=mpp,
            regions=shapes[is_region],
            measurements={name: [self.measured[row].get(name, np.nan) for row in rows] for name in columns},
            colors=[self.colors.get(name, GREY) for name in classes] if self.colors else None,
        )
        return with_score(cells, scores)


def _ids(ids: list[Any], options: ReadOptions) -> list[Any] | None:
    """Return ids if each cell has one of its own: whole numbers if all are."""
    texts = ["" if each is None else str(each) for each in ids]
    too_long = sum(len(text.encode()) > LONGEST_ID_BYTES for text in texts)
    options.repairs.count(f"ids longer than {LONGEST_ID_BYTES} bytes left out with all others", too_long)
    if not texts or too_long or "" in texts:
        return None
    if all(re.fullmatch(r"0|[1-9]\d{0,17}", text, re.ASCII) for text in texts):
        return [int(text) for text in texts]
    return texts


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
