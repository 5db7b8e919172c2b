"""ASAP XML: a flat list of annotations, each part of a group, which is its class."""

import re
from typing import BinaryIO

import shapely

from sparseshot.cells.formats.options import ReadOptions, Source, WriteOptions
from sparseshot.cells.formats.xml_parts import (
    Gathered,
    attribute,
    count_what_xml_lacks,
    elements,
    id_text,
    one_polygon,
    positions,
    vertices,
)
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

_NO_CELLS = {"Measurement": "measured lines left out"}
_YELLOW = (244, 250, 88)
_POINTS = ("Dot", "PointSet")
_OUTLINES = ("Polygon", "Spline", "Rectangle")


def read(source: Source, options: ReadOptions) -> Cells:
    """Read polygons, splines (by their points), rectangles and dots; each dot of a point set is a cell."""
    gathered = Gathered()
    for element in elements(source, whole="Annotation"):
        if element.tag == "Group":
            gathered.classes[element.get("Name", "")] = None
            _note_color(gathered, element.get("Name", ""), element.get("Color", ""))
        if element.tag != "Annotation":
            continue
        name, kind = element.get("Name", ""), element.get("Type", "Polygon")
        what = f"annotation {name!r}"
        if kind in _NO_CELLS:
            options.repairs.count(_NO_CELLS[kind])
            continue
        if kind not in (*_POINTS, *_OUTLINES):
            raise FormatError(source.name, f"{what} is a {kind}; known are {', '.join(_POINTS + _OUTLINES)}")
        group = element.get("PartOfGroup", "").strip()
        group = "" if group == "None" else group
        _note_color(gathered, group, element.get("Color", ""))
        found = positions(element.find("Coordinates"), "Coordinate", what, source.name)
        if kind in _OUTLINES:
            gathered.add(found, group or None, name)
            continue
        for number, vertex in enumerate(found):
            gathered.add(vertex[None], group or None, name if kind == "Dot" else f"{name}#{number}")
    return gathered.cells(options)


def _note_color(gathered: Gathered, group: str, color: str) -> None:
    if group and group not in gathered.colors and re.fullmatch(r"#[0-9a-fA-F]{6}", color):
        gathered.colors[group] = (int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16))


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write polygons and dots with their groups, and exhaustive regions as a group of their own."""
    count_what_xml_lacks(cells, options.losses)
    colors = dict(zip(cells.classes, cells.colors or [_YELLOW] * len(cells.classes), strict=True))
    file.write(b'<?xml version="1.0"?>\n<ASAP_Annotations>\n<Annotations>\n')
    for row in range(len(cells)):
        group = "None" if cells.label[row] < 0 else cells.classes[cells.label[row]]
        outline = None if cells.outline is None else cells.outline[row]
        shape = shapely.Point(cells.xy[row]) if outline is None else one_polygon(outline, options.losses)
        file.write(_annotation(id_text(cells, row), group, shape, colors.get(group), options))
    for row, region in enumerate(cells.regions):
        shape = one_polygon(region, options.losses)
        file.write(_annotation(f"exhaustive {row}", options.exhaustive_class, shape, None, options))
    file.write(b"</Annotations>\n<AnnotationGroups>\n")
    for name, color in colors.items():
        group = f'<Group Name={attribute(name)} PartOfGroup="None" Color="{_web(color)}">'
        file.write(f"{group}<Attributes/></Group>\n".encode())
    file.write(b"</AnnotationGroups>\n</ASAP_Annotations>\n")


def _web(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _annotation(
    name: str, group: str, shape: shapely.Geometry, color: tuple[int, int, int] | None, options: WriteOptions
) -> bytes:
    is_point = shape.geom_type == "Point"
    if not is_point:
        options.losses.count("holes in outlines filled", len(shape.interiors))
    return (
        f'<Annotation Name={attribute(name)} Type="{"Dot" if is_point else "Polygon"}" '
        f'PartOfGroup={attribute(group)} Color="{_web(color or _YELLOW)}">'
        f"<Coordinates>{vertices(shape if is_point else shape.exterior, 'Coordinate')}</Coordinates>"
        "</Annotation>\n"
    ).encode()
