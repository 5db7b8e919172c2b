"""A table of cells as COCO JSON of one image."""

from typing import Any, BinaryIO

import numpy as np
import orjson
import shapely

from sparseshot.cells.formats.coco import MEMBER
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import Cells

BATCH_ROWS = 20_000


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write one image with its categories and annotations; a point is a key point."""
    if options.size_px is None:
        corner = cells.xy.max(axis=0, initial=0)
        if cells.outline is not None:
            corner = np.fmax(corner, shapely.total_bounds(cells.outline)[2:])
        width, height = np.ceil(corner).astype(int).tolist()
    else:
        width, height = options.size_px
    head = {
        MEMBER: {"mpp": cells.mpp, "regions": [region.wkt for region in cells.regions]},
        "images": [{"id": 1, "file_name": "", "width": width, "height": height}],
        "categories": [_category(cells, label) for label in range(len(cells.classes))],
    }
    # "images" first: by it the file is known.
    head = {"images": head.pop("images")} | head
    file.write(orjson.dumps(head)[:-1] + b',"annotations":[')
    for start in range(0, len(cells), BATCH_ROWS):
        part = _annotations(cells[start : start + BATCH_ROWS], start, options)
        file.write((b",\n" if start else b"\n") + orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    file.write(b"\n]}\n")
    options.losses.count("nuclei left out", 0 if cells.nucleus is None else len(cells))


def _category(cells: Cells, label: int) -> dict[str, Any]:
    color = {} if cells.colors is None else {"color": cells.colors[label]}
    return {"id": label + 1, "name": cells.classes[label], "keypoints": ["centre"], "skeleton": []} | color


def _annotations(cells: Cells, start: int, options: WriteOptions) -> list[dict[str, Any]]:
    outlines = np.full(len(cells), None) if cells.outline is None else cells.outline
    rings = rings_of(outlines)
    holes = len(rings.rings) - len(rings.polygons)
    options.losses.count("holes in outlines filled", holes)
    bounds, areas = shapely.bounds(outlines), shapely.area(outlines)
    written = []
    for row in range(len(cells)):
        each: dict[str, Any] = {"id": start + row + 1, "image_id": 1, "iscrowd": 0}
        if cells.id is not None:
            name = cells.id[row]
            each["id"] = name.decode() if isinstance(name, bytes) else int(name)
        if cells.label[row] >= 0:
            each["category_id"] = int(cells.label[row]) + 1
        x, y = cells.xy[row].tolist()
        shells = rings.polygons[rings.outlines[row] : rings.outlines[row + 1]]
        if len(shells):
            # Without the last vertex: COCO closes rings by itself.
            each["segmentation"] = [rings.xy[rings.rings[k] : rings.rings[k + 1] - 1].ravel() for k in shells]
            x0, y0, x1, y1 = bounds[row].tolist()
            each |= {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": float(areas[row])}
        else:
            each |= {"bbox": [x, y, 0, 0], "area": 0, "keypoints": [x, y, 2], "num_keypoints": 1}
        if cells.score is not None:
            each["score"] = float(cells.score[row])
        values = {name: float(column[row]) for name, column in cells.measurements.items()}
        if values:
            each["attributes"] = {name: value for name, value in values.items() if np.isfinite(value)}
        written.append(each)
    return written
