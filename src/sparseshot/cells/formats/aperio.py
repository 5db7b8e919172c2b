"""Aperio ImageScope XML: layers of regions, a layer for each class.

ImageScope names pixels: its (0, 0) is the middle of the first one, our (0.5, 0.5). The label images published
with MoNuSeg agree with its XML at an IoU of 0.90 to 1.00 so, and at 0.88 to 0.94 without the half pixel.
"""

import re
from dataclasses import dataclass
from typing import BinaryIO
from xml.etree.ElementTree import Element

import numpy as np
import shapely
from numpy.typing import NDArray

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

_FREEHAND, _ELLIPSE, _PIN = "0", "2", "5"
_GREEN = (0, 255, 0)
_ELLIPSE_VERTICES = 64
_HALF_PX = 0.5


@dataclass
class _Layer:
    """An ``<Annotation>`` of the file; its colour is packed as blue, green, red."""

    id: str = ""
    name: str = ""
    color: str = ""

    def declare(self, gathered: Gathered) -> None:
        """Tell of the class and its colour, be there a cell of it or not."""
        if self.name:
            gathered.classes[self.name] = None
            if self.color.isascii() and self.color.isdigit():
                packed = int(self.color[:10])
                gathered.colors.setdefault(self.name, (packed & 255, packed >> 8 & 255, packed >> 16 & 255))


def read(source: Source, options: ReadOptions) -> Cells:
    """Read regions; the class is the name of their layer, of its attribute, or the text of the region."""
    gathered, layer, mpp, layers = Gathered(), _Layer(), None, 0
    long_ids: list[str] = []
    for element in elements(source, whole="Region"):
        if element.tag == "Annotations":
            mpp = _mpp(element)
        elif element.tag == "Annotation":
            layers += 1
            name = element.get("Name", "").strip()
            name = "" if re.fullmatch(r"Layer \d+", name) else name  # ImageScope only counted it
            layer = _Layer(element.get("Id", str(layers)), name, element.get("LineColor", ""))
            layer.declare(gathered)
        elif element.tag == "Attribute":
            layer.name = layer.name or _attribute(element)
            layer.declare(gathered)
        elif element.tag == "Region":
            what = f"region {element.get('Id', '?')} of layer {layer.id}"
            ring = _ring(element, what, source.name)
            if element.get("NegativeROA") == "1" and gathered.ring_counts:
                gathered.rings.append(ring)  # a hole in the region before
                gathered.ring_counts[-1] += 1
            elif len(ring) == 2:
                options.repairs.count("lines left out")
            else:
                class_name = layer.name or element.get("Text", "").strip() or None
                gathered.add(ring, class_name, element.get("Guid", element.get("Id", "")))
                long_ids.append(f"{layer.id}-{element.get('Id', '')}")
    if len(set(gathered.id)) < len(gathered.id):  # each layer counts from 1
        gathered.id = long_ids
    return gathered.cells(options, mpp=mpp)


def _mpp(element: Element) -> float | None:
    try:
        mpp = float(element.get("MicronsPerPixel", "nan"))
    except ValueError:
        return None
    return mpp if 0 < mpp < np.inf else None


def _attribute(element: Element) -> str:
    """Return what an attribute says of a layer: its value, or its name where it has none (MoNuSAC's way)."""
    value, name = element.get("Value", "").strip(), element.get("Name", "").strip()
    return value or ("" if name == "Description" else name)


def _ring(region: Element, what: str, where: str) -> NDArray[np.float64]:
    found = positions(region.find("Vertices"), "Vertex", what, where) + _HALF_PX
    if region.get("Type") != _ELLIPSE or not len(found):
        return found
    # An ellipse is written as the corners of its box.
    low, high = found.min(axis=0), found.max(axis=0)
    angle = np.linspace(0, 2 * np.pi, _ELLIPSE_VERTICES, endpoint=False)
    around = np.column_stack([np.cos(angle), np.sin(angle)])
    ellipse: NDArray[np.float64] = (low + high) / 2 + (high - low) / 2 * around
    return ellipse


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write a layer for each class, so that cells change their order; regions are a layer of their own."""
    count_what_xml_lacks(cells, options.losses)
    mpp = "" if cells.mpp is None else f' MicronsPerPixel="{cells.mpp}"'
    file.write(f"<Annotations{mpp}>\n".encode())
    for label in [*range(len(cells.classes)), -1]:
        rows = np.flatnonzero(cells.label == label)
        if label < 0 and not len(rows):
            continue
        color = _GREEN if cells.colors is None or label < 0 else cells.colors[label]
        file.write(_layer_head(label + 2, "" if label < 0 else cells.classes[label], color))
        for row in rows.tolist():
            outline = None if cells.outline is None else cells.outline[row]
            shape = shapely.Point(cells.xy[row]) if outline is None else one_polygon(outline, options.losses)
            file.write(_region(id_text(cells, row), shape))
        file.write(b"</Regions></Annotation>\n")
    if len(cells.regions):
        file.write(_layer_head(len(cells.classes) + 2, options.exhaustive_class, _GREEN))
        for row, region in enumerate(cells.regions):
            file.write(_region(f"exhaustive {row + 1}", one_polygon(region, options.losses)))
        file.write(b"</Regions></Annotation>\n")
    file.write(b"</Annotations>\n")


def _layer_head(number: int, name: str, color: tuple[int, int, int]) -> bytes:
    red, green, blue = color
    packed = red | green << 8 | blue << 16
    return (
        f'<Annotation Id="{number}" Name={attribute(name)} ReadOnly="0" Type="4" LineColor="{packed}" '
        'Visible="1" Selected="0"><Attributes/><Regions>\n'
    ).encode()


def _region(name: str, shape: shapely.Geometry) -> bytes:
    """Return a region, and after it a negative one for each hole."""
    own = f'Id="{name}"' if name.isdigit() else f'Id="0" Guid={attribute(name)}'
    rings = [shape] if shape.geom_type == "Point" else [shape.exterior, *shape.interiors]
    kind = _PIN if shape.geom_type == "Point" else _FREEHAND
    return "".join(
        f'<Region {own} Type="{kind}" NegativeROA="{int(number > 0)}">'
        f"<Vertices>{vertices(ring, 'Vertex', shift=-_HALF_PX)}</Vertices></Region>\n"
        for number, ring in enumerate(rings)
    ).encode()
