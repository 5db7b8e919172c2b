"""What the XML formats share: a safe walk over elements, coordinates and text of attributes."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import quoteattr

import numpy as np
import shapely
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse
from numpy.typing import NDArray

from sparseshot.cells.formats.options import OpenFile
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

DEEPEST = 50
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def elements(source: OpenFile, *, whole: str) -> Iterator[Element]:
    """Yield the elements named ``whole`` with their content, and those around them as they begin.

    Each is freed afterwards, so that memory does not grow with the file. Entities are refused.
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
    except (ParseError, LookupError, ValueError) as error:  # the last two for encodings that expat lacks
        raise FormatError(source.name, f"is not valid XML: {error}; export or copy it again") from None


def positions(parent: Element | None, tags: tuple[str, ...], what: str, where: str) -> NDArray[np.float64]:
    """Return X and Y of the children of an element that have one of the tags."""
    found = [] if parent is None else [child for child in parent if child.tag in tags]
    try:
        return np.array([(float(each.attrib["X"]), float(each.attrib["Y"])) for each in found]).reshape(-1, 2)
    except KeyError as error:
        raise FormatError(where, f"{what} has a {tags[0]} without {error}") from None
    except ValueError as error:
        raise FormatError(where, f"{what} has a {tags[0]} without coordinates: {error}") from None


def written_shape(cells: Cells, row: int, losses: Repairs) -> shapely.Geometry:
    """Return the polygon of a cell, or its point."""
    outline = None if cells.outline is None else cells.outline[row]
    return shapely.Point(cells.xy[row]) if outline is None else one_polygon(outline, losses)


def one_polygon(outline: shapely.Geometry, losses: Repairs) -> shapely.Polygon:
    """Return the largest polygon of an outline, for formats that hold only one."""
    parts = shapely.get_parts(outline)
    losses.count("outlines of several parts cut to the largest", len(parts) > 1)
    return parts[np.argmax(shapely.area(parts))]


def id_text(cells: Cells, row: int) -> str:
    """Return the id of a cell, or its number from 1 where there are no ids."""
    if cells.id is None:
        return str(row + 1)
    name = cells.id[row]
    return name.decode() if isinstance(name, bytes) else str(name)


def attribute(text: str, losses: Repairs) -> str:
    """Quote the value of an attribute; line ends as references, else a parser turns them into spaces."""
    allowed = _NOT_IN_XML.sub("\ufffd", text)
    losses.count("texts with control characters changed", allowed != text)
    return quoteattr(allowed, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def vertices(ring: shapely.Geometry, tag: str, *, shift: float = 0.0) -> str:
    """Return an element for each vertex of a ring, except the last one that closes it, or for a point."""
    places = (shapely.get_coordinates(ring) + shift).tolist()
    places = places[:-1] if len(places) > 1 else places
    return "".join(f'<{tag} Order="{k}" X="{x!r}" Y="{y!r}"/>' for k, (x, y) in enumerate(places))
