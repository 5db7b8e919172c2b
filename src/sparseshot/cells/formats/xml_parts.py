"""What the two XML formats share: a safe walk, coordinates from attributes, rows that become a table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import quoteattr

import numpy as np
import shapely
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES
from sparseshot.cells.formats.options import ReadOptions, Source
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, offsets
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

DEEPEST = 50


def elements(source: Source, *, whole: str) -> Iterator[Element]:
    """Return the elements of the name ``whole`` one after another, and those around them as they begin.

    Each is forgotten after it was given, so that a file of any size is read; entities, and nesting without
    end, are refused.
    """
    around: list[Element] = []
    inside = 0
    try:
        for event, element in iterparse(source.file, events=("start", "end"), forbid_dtd=True):
            if event == "start":
                around.append(element)
                inside += element.tag == whole
                if len(around) > DEEPEST:
                    raise FormatError(source.name, f"is nested more than {DEEPEST} levels deep")
                if not inside:
                    yield element
                continue
            around.pop()
            if element.tag == whole:
                inside -= 1
                yield element
                if around:
                    around[-1].remove(element)
    except DefusedXmlException:
        raise FormatError(source.name, "defines a document type or entities, which no export does") from None
    except ParseError as error:
        raise FormatError(source.name, f"is not valid XML: {error}; export or copy it again") from None


def positions(parent: Element | None, tag: str, what: str, where: str) -> NDArray[np.float64]:
    """Return the X and Y of the children of an element."""
    found = [] if parent is None else parent.findall(tag)
    try:
        return np.array([(float(each.attrib["X"]), float(each.attrib["Y"])) for each in found]).reshape(-1, 2)
    except KeyError as error:
        raise FormatError(where, f"{what} has a {tag} without {error}") from None
    except ValueError as error:
        raise FormatError(where, f"{what} has a {tag} that is no place: {error}") from None


@dataclass
class Gathered:
    """Cells as they come from a file: each with rings, or with a single vertex if it is a point."""

    rings: list[NDArray[np.float64]] = field(default_factory=list)
    ring_counts: list[int] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    id: list[str] = field(default_factory=list)
    classes: dict[str, None] = field(default_factory=dict)
    colors: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, ring: NDArray[np.float64], name: str | None, own_id: str) -> None:
        """Add a cell of a class."""
        if len(own_id) > LONGEST_ID_BYTES:
            raise ValueError(f"an id is longer than {LONGEST_ID_BYTES} bytes")
        self.rings.append(ring)
        self.ring_counts.append(1)
        self.names.append(name)
        self.id.append(own_id)

    def cells(self, options: ReadOptions, *, mpp: float | None = None) -> Cells:
        """Build the table; outlines of the exhaustive class become regions."""
        counts = np.array(self.ring_counts, np.int64)
        first = offsets(counts)[:-1]
        lengths = np.array([len(ring) for ring in self.rings], np.int64)
        is_point = (counts == 1) & (lengths[first] == 1) if len(counts) else np.zeros(0, bool)
        xy = np.concatenate([np.empty((0, 2)), *self.rings])
        each = np.arange(len(counts) + 1)
        source = Rings(xy, offsets(lengths), offsets(counts), each)
        shapes, places = build_outlines(source, options.repairs, wanted=~is_point)
        places[is_point] = xy[offsets(lengths)[first[is_point]]]
        finite = np.abs(places).max(axis=1, initial=0) <= FARTHEST_PX
        options.repairs.count(NOT_FINITE, (~finite & is_point).sum())
        is_region = np.array([name == options.exhaustive_class for name in self.names], bool) & ~is_point
        rows = np.flatnonzero(finite & ~is_region)
        names = [self.names[row] for row in rows]
        declared = [name for name in self.classes if name != options.exhaustive_class]
        classes = tuple(dict.fromkeys([*declared, *filter(None, names)]))
        place = {name: number for number, name in enumerate(classes)}
        label = [place.get(name or "", -1) for name in names]
        if not classes:  # the file tells of no class at all
            classes, label = ("cell",), [0] * len(rows)
        colors = [self.colors[name] for name in classes if name in self.colors]
        return Cells(
            places[rows],
            classes=classes,
            label=label,
            outline=None if is_point[rows].all() else shapes[rows],
            id=_ids([self.id[row] for row in rows]),
            mpp=mpp,
            regions=shapes[is_region & finite],
            colors=colors if len(colors) == len(classes) else None,
        )


def _ids(names: list[str]) -> Any:
    """Return ids if each is there and its own: whole numbers if all are."""
    if len(set(names)) != len(names) or "" in names:
        return None
    if all(name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name for name in names):
        return np.array([int(name) for name in names], np.int64)
    return names


def one_polygon(outline: shapely.Geometry, losses: Repairs) -> shapely.Polygon:
    """Return the largest polygon of an outline, for formats that hold only one."""
    parts = shapely.get_parts(outline)
    losses.count("outlines of several parts cut to the largest", len(parts) > 1)
    return parts[np.argmax(shapely.area(parts))]


def count_what_xml_lacks(cells: Cells, losses: Repairs) -> None:
    """Count the columns for which these formats have no place."""
    losses.count("scores left out", 0 if cells.score is None else len(cells))
    losses.count("measurements left out", len(cells.measurements))
    losses.count("nuclei left out", 0 if cells.nucleus is None else len(cells))


def id_text(cells: Cells, row: int) -> str:
    """Return the id of a cell, or its number from 1 where there are no ids."""
    if cells.id is None:
        return str(row + 1)
    name = cells.id[row]
    return name.decode() if isinstance(name, bytes) else str(name)


def attribute(text: str) -> str:
    """Quote the value of an attribute; line ends as references, else a parser turns them into spaces."""
    return quoteattr(text, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def vertices(ring: shapely.Geometry, tag: str, *, shift: float = 0.0) -> str:
    """Return an element for each vertex of a ring, without the last one, which closes it, or for a point."""
    places = (shapely.get_coordinates(ring) + shift).tolist()
    places = places[:-1] if len(places) > 1 else places
    return "".join(f'<{tag} Order="{k}" X="{x!r}" Y="{y!r}"/>' for k, (x, y) in enumerate(places))
