"""ASAP XML: a flat list of annotations, each part of a group, which is its class."""

from typing import BinaryIO

import shapely

from sparseshot.cells.formats.gathered import Color, Gathered, Row, first_unique, web_color
from sparseshot.cells.formats.options import OpenFile, ReadOptions, WriteOptions
from sparseshot.cells.formats.xml_text import attribute, elements, positions, vertices, written_shapes
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

_YELLOW = (244, 250, 88)
_POINTS = ("Dot", "PointSet")
_OUTLINES = ("Polygon", "Spline", "Rectangle")


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read polygons, splines (by their points), rectangles and dots; each dot of a point set is a cell."""
    gathered = Gathered()
    for element in elements(source, whole="Annotation"):
        if element.tag not in {"Group", "Annotation"}:
            continue
        name, color = element.get("Name", ""), web_color(element.get("Color", ""))
        if element.tag == "Group":
            gathered.declare(name, color)
            continue
        group = element.get("PartOfGroup", "").strip()
        group = "" if group == "None" else group
        if group and color:
            gathered.colors.setdefault(group, color)
        kind, what = element.get("Type", "Polygon"), f"annotation {name[:200]!r}"
        if kind == "Measurement":
            options.repairs.count("measured lines left out")
            continue
        if kind not in (*_POINTS, *_OUTLINES):
            raise FormatError(source.name, f"{what} is a {kind}; known are {', '.join(_POINTS + _OUTLINES)}")
        found = positions(element.find("Coordinates"), ("Coordinate",), what, source.name)
        if kind in _OUTLINES:
            gathered.rows.append(Row(group or None, name, [[found.tolist()]]))
            continue
        for number, vertex in enumerate(found.tolist()):
            own_id = name if kind == "Dot" else f"{name}#{number}"
            gathered.rows.append(Row(group or None, own_id, [[[vertex]]], "Point"))
    return gathered.cells(options, ids=first_unique([row.own_id for row in gathered.rows]))  # free text


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write polygons and dots with their groups, and exhaustive regions as a group of their own."""
    options.count_lost(cells, "score", "measurements", "nucleus", "name", "region_notes")
    colors = dict(zip(cells.classes, cells.colors or [_YELLOW] * len(cells.classes), strict=True))
    file.write(b'<?xml version="1.0"?>\n<ASAP_Annotations>\n<Annotations>\n')
    for group, name, shape in written_shapes(cells, options):
        file.write(_annotation(name, group or "None", shape, colors.get(group or "", _YELLOW), options))
    file.write(b"</Annotations>\n<AnnotationGroups>\n")
    for name, color in colors.items():
        group = f'<Group Name={attribute(name, options.losses)} PartOfGroup="None" Color="{_web(color)}">'
        file.write(f"{group}<Attributes/></Group>\n".encode())
    file.write(b"</AnnotationGroups>\n</ASAP_Annotations>\n")


def _web(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _annotation(name: str, group: str, shape: shapely.Geometry, color: Color, options: WriteOptions) -> bytes:
    is_point = shape.geom_type == "Point"
    if not is_point:
        options.losses.count("holes in outlines filled", len(shape.interiors))
    return (
        f'<Annotation Name={attribute(name, options.losses)} Type="{"Dot" if is_point else "Polygon"}" '
        f'PartOfGroup={attribute(group, options.losses)} Color="{_web(color)}">'
        f"<Coordinates>{vertices(shape if is_point else shape.exterior, 'Coordinate')}</Coordinates>"
        "</Annotation>\n"
    ).encode()
