"""XML of Aperio ImageScope and of HALO: layers of regions, a layer for each class.

ImageScope numbers pixels: its (0, 0) is the middle of the first one, our (0.5, 0.5). With this half pixel the
label images published with MoNuSeg agree with its XML at an IoU of 0.90 to 1.00, without it at 0.88 to 0.94.
HALO writes the same elements with vertices named ``V`` and types in words; its coordinates are taken as they
are.
"""

import re
from typing import BinaryIO
from xml.etree.ElementTree import Element

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from sparseshot.cells.formats.gathered import Color, Gathered, Row, first_unique
from sparseshot.cells.formats.options import OpenFile, ReadOptions, WriteOptions
from sparseshot.cells.formats.xml_text import attribute, elements, positions, vertices, written_shapes
from sparseshot.cells.outlines import FARTHEST_PX
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells

Hole = tuple[int, int, NDArray[np.float64]]
"""A negative region: its layer, the number of regions before it, and its ring."""

_FREEHAND, _PIN = "0", "5"
_ELLIPSES, _RECTANGLES, _LINES = {"2", "Ellipse"}, {"Rectangle"}, {"4", "Ruler", "Line"}
_GREEN = (0, 255, 0)
_ELLIPSE_VERTICES = 64
_HALF_PX = 0.5
_TOUCHING_PX = 1e-3
"""Distance within which a hole may touch the outside of its region, for rounded coordinates."""


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read regions; the class is the name of their layer, of its attribute, or the text of the region."""
    gathered, mpp, layers = Gathered(), None, 0
    layer = name = ""
    color: Color | None = None
    long_ids: list[str] = []
    layer_of_row: list[int] = []
    holes: list[Hole] = []
    for element in elements(source, whole="Region"):
        if element.tag == "Annotations":
            mpp = _mpp(element)
        elif element.tag == "Annotation":
            layers += 1
            layer, name = element.get("Id", str(layers)), element.get("Name", "").strip()
            name = "" if re.fullmatch(r"Layer \d+", name) else name  # a number given by the program
            color = _color(element.get("LineColor", ""))
            gathered.declare(name, color)
        elif element.tag == "Attribute":
            name = name or _attribute(element)
            gathered.declare(name, color)
        elif element.tag == "Region":
            what = f"region {element.get('Id', '?')} of layer {layer}"
            ring = _ring(element, what, source.name)
            if element.get("NegativeROA") == "1":
                holes.append((layers, len(layer_of_row), ring))
            elif len(ring) == 2 or element.get("Type") in _LINES:
                options.repairs.count("lines left out")
            else:
                own_id = element.get("Guid", element.get("Id", ""))
                own_name = name or element.get("Text", "").strip() or None
                geometry = "Point" if len(ring) == 1 else "Polygon"
                gathered.rows.append(Row(own_name, own_id, [[ring.tolist()]], geometry))
                layer_of_row.append(layers)
                long_ids.append(f"{layer}-{element.get('Id', '')}")
    _cut(gathered, layer_of_row, holes, options.repairs)
    ids = first_unique([row.own_id for row in gathered.rows], long_ids)  # each layer counts from 1
    return gathered.cells(options, mpp=mpp, ids=ids)


def _cut(gathered: Gathered, layer_of_row: list[int], holes: list[Hole], repairs: Repairs) -> None:
    """Add each hole to the last region before it, else to the first after it, that contains it."""
    if not holes:
        return
    rings = [row.coordinates[0][0] for row in gathered.rows]
    shells = [shapely.Polygon(ring) if _is_ring(ring) else None for ring in rings]
    tree = shapely.STRtree(shells)
    for layer, before, ring in holes:
        around = []
        if _is_ring(ring):
            corners = shapely.points(ring)
            near = tree.query(shapely.MultiPoint(ring), predicate="dwithin", distance=_TOUCHING_PX)
            own = [row for row in sorted(near.tolist()) if layer_of_row[row] == layer]
            around = [row for row in own if shapely.dwithin(corners, shells[row], _TOUCHING_PX).all()]
        if around:
            row = max((row for row in around if row < before), default=around[0])
            gathered.rows[row].coordinates[0].append(ring.tolist())
        else:
            repairs.count("negative regions in no other left out")


def _is_ring(ring: ArrayLike) -> bool:
    return np.size(ring) > 4 and bool((np.abs(ring) <= FARTHEST_PX).all())


def _color(packed: str) -> Color | None:
    """Return a colour that is packed as blue, green, red."""
    if not (packed.isascii() and packed.isdigit()):
        return None
    value = int(packed[:10])
    return value & 255, value >> 8 & 255, value >> 16 & 255


def _mpp(element: Element) -> float | None:
    try:
        mpp = float(element.get("MicronsPerPixel", "nan"))
    except ValueError:
        return None
    return mpp if 0 < mpp < np.inf else None


def _attribute(element: Element) -> str:
    """Return the class that an attribute of a layer names: its value or, as in MoNuSAC, its name."""
    value, name = element.get("Value", "").strip(), element.get("Name", "").strip()
    return value or ("" if name == "Description" else name)


def _ring(region: Element, what: str, where: str) -> NDArray[np.float64]:
    parent = region.find("Vertices")
    found = positions(parent, ("Vertex", "V"), what, where)
    if parent is None or parent.find("V") is None:
        found += _HALF_PX
    kind = region.get("Type")
    if len(found) < 2 or kind not in _ELLIPSES | _RECTANGLES:
        return found
    # Both are written as the corners of a box.
    low, high = found.min(axis=0), found.max(axis=0)
    if kind in _RECTANGLES:
        corners: NDArray[np.float64] = shapely.get_coordinates(shapely.box(*low, *high))
        return corners
    angle = np.linspace(0, 2 * np.pi, _ELLIPSE_VERTICES, endpoint=False)
    around = np.column_stack([np.cos(angle), np.sin(angle)])
    ellipse: NDArray[np.float64] = (low + high) / 2 + (high - low) / 2 * around
    return ellipse


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write a layer for each class, so that cells change their order; regions are a layer of their own."""
    options.count_lost(cells, "score", "measurements", "nucleus", "name", "region_notes")
    losses = options.losses
    mpp = "" if cells.mpp is None else f' MicronsPerPixel="{cells.mpp}"'
    file.write(f"<Annotations{mpp}>\n".encode())
    colors = dict(zip(cells.classes, cells.colors or [_GREEN] * len(cells.classes), strict=True))
    layers: dict[str, list[bytes]] = {name: [] for name in cells.classes}
    for layer, own_id, shape in written_shapes(cells, options):
        layers.setdefault(layer or "", []).append(_region(own_id, shape, losses))
    for number, (name, regions) in enumerate(layers.items(), 1):
        red, green, blue = colors.get(name, _GREEN)
        packed = red | green << 8 | blue << 16
        head = f'<Annotation Id="{number}" Name={attribute(name, losses)} ReadOnly="0" Type="4"'
        more = f'LineColor="{packed}" Visible="1" Selected="0"><Attributes/><Regions>'
        file.write(f"{head} {more}\n".encode())
        file.writelines(regions)
        file.write(b"</Regions></Annotation>\n")
    file.write(b"</Annotations>\n")


def _region(name: str, shape: shapely.Geometry, losses: Repairs) -> bytes:
    """Return a region, and after it a negative one for each hole."""
    own = f'Id="{name}"' if name.isdigit() else f'Id="0" Guid={attribute(name, losses)}'
    rings = [shape] if shape.geom_type == "Point" else [shape.exterior, *shape.interiors]
    kind = _PIN if shape.geom_type == "Point" else _FREEHAND
    return "".join(
        f'<Region {own} Type="{kind}" NegativeROA="{int(number > 0)}">'
        f"<Vertices>{vertices(ring, 'Vertex', shift=-_HALF_PX)}</Vertices></Region>\n"
        for number, ring in enumerate(rings)
    ).encode()
