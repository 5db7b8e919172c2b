"""Functions of all XML formats: safe iteration over elements, coordinates, text of attributes."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import quoteattr

import numpy as np
import shapely
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse
from numpy.typing import NDArray

from sparseshot.cells.formats.options import OpenFile, WriteOptions
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


def written_shapes(cells: Cells, options: WriteOptions) -> Iterator[tuple[str | None, str, shapely.Geometry]]:
    """Yield class, id and polygon or point of each cell, then of the exhaustive regions.

    These formats hold one polygon for each, so the largest of several is taken. Cells without ids are
    numbered from 1.
    """
    shapes = shapely.points(cells.xy) if cells.outline is None else cells.outline
    ids = range(1, len(cells) + 1) if cells.id is None else cells.id.tolist()
    names = (*cells.classes, None)
    for label, own_id, shape, xy in zip(cells.label.tolist(), ids, shapes, cells.xy, strict=True):
        text = own_id.decode() if isinstance(own_id, bytes) else str(own_id)
        yield names[label], text, shapely.Point(xy) if shape is None else _largest(shape, options.losses)
    for number, region in enumerate(cells.regions, 1):
        yield options.exhaustive_class, f"exhaustive {number}", _largest(region, options.losses)


def _largest(shape: shapely.Geometry, losses: Repairs) -> shapely.Geometry:
    parts = shapely.get_parts(shape)
    losses.count("outlines of several parts cut to the largest", len(parts) > 1)
    return parts[np.argmax(shapely.area(parts))]


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
