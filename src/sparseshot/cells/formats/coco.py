"""COCO JSON: polygons, run lengths, key points or boxes of one image."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.gathered import Color, Gathered, Row, web_color
from sparseshot.cells.formats.options import MEMBER, OpenFile, ReadOptions, WriteOptions, chosen_image
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import rings_of
from sparseshot.cells.table import Cells
from sparseshot.cells.trace import trace
from sparseshot.errors import FormatError

BATCH_ROWS = 20_000
MOST_PIXELS = 1 << 28
_NOT_UNDERSTOOD = (
    AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
    shapely.GEOSException,
)  # fmt: skip


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read the annotations of one image; a bare list of results is read too."""
    gathered = Gathered()
    try:
        text = source.file.read()
        content = json.loads(text)
        if b"\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # raises at half a surrogate pair
        content = {"annotations": content} if isinstance(content, list) else content
        categories = {each["id"]: str(each["name"]) for each in content.get("categories", ())}
        for each in content.get("categories", ()):
            gathered.declare(str(each["name"]), _color(each["color"]) if each.get("color") else None)
        # CVAT and Datumaro write each mask of a single object as a crowd.
        masked = [each for each in content["annotations"] if each.get("segmentation")]
        crowds_are_cells = bool(masked) and all(each.get("iscrowd") == 1 for each in masked)
        annotations = _of_image(content, options.image, source.name)
        own = content.get(MEMBER, {})
        regions = shapely.from_wkt(np.array(own.get("regions", []), object))
        mpp = None if own.get("mpp") is None else float(own["mpp"])
    except _NOT_UNDERSTOOD as error:
        raise FormatError(source.name, f"is not COCO: {_reason(error)}") from None
    for number, annotation in enumerate(annotations):
        try:
            if annotation.get("iscrowd") == 1 and not crowds_are_cells:
                options.repairs.count("crowds left out")
            else:
                _add(gathered, annotation, categories, options.repairs)
        except _NOT_UNDERSTOOD as error:
            what = annotation.get("id", number) if isinstance(annotation, dict) else number
            reason = _reason(error)
            raise FormatError(source.name, f"annotation {what} cannot be understood: {reason}") from None
    if not categories:
        names = {row.name for row in gathered.rows if row.name}
        named = sorted(names, key=lambda name: (len(name), name))  # by number
        gathered.classes = dict.fromkeys(named)
    cells = gathered.cells(options, mpp=mpp)
    return replace(cells, regions=np.concatenate([regions, cells.regions]))


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _color(value: Any) -> Color:
    """Return a colour that is written as three numbers or as ``#rrggbb``."""
    color = web_color(value) if isinstance(value, str) else value
    if color is None:
        raise ValueError(f"a colour is {value!r}")
    red, green, blue = color
    return int(red), int(green), int(blue)


def _of_image(content: Mapping[str, Any], image: str | int | None, where: str) -> list[Any]:
    annotations: list[Any] = content["annotations"]
    named = {each["id"]: str(each.get("file_name", each["id"])) for each in content.get("images", ())}
    ids = dict.fromkeys(each["image_id"] for each in annotations if "image_id" in each)
    if image is not None:
        ids |= dict.fromkeys(named)  # one without annotations may be asked for
    chosen = chosen_image({each: named.get(each, str(each)) for each in ids}, image, where)
    return annotations if chosen is None else [each for each in annotations if each.get("image_id") == chosen]


def _add(
    gathered: Gathered, annotation: Mapping[str, Any], names: Mapping[Any, str], repairs: Repairs
) -> None:
    """Add an annotation: its polygons or runs, else a key point or the middle of its box."""
    category, segmentation = annotation.get("category_id"), annotation.get("segmentation")
    if category is not None and names and category not in names:
        raise ValueError(f"its category {category!r} is not among the categories of the file")
    score = annotation.get("score")
    measured = (annotation.get("attributes") or {}).items()
    name = None if category is None else names.get(category, str(category))
    row = Row(
        name,
        annotation.get("id"),
        [],
        score=np.nan if score is None else float(score),
        measured={name: float(value) for name, value in measured if isinstance(value, int | float)},
    )
    if isinstance(segmentation, dict):
        shape = outline_of_runs(segmentation)
        repairs.count("empty masks left out", shape is None)
        if shape is not None:
            gathered.rows.append(row._replace(shape=shape))
    elif segmentation:
        polygons = [[np.array(ring, np.float64).reshape(-1, 2).tolist()] for ring in segmentation]
        gathered.rows.append(row._replace(coordinates=polygons))
    else:
        x, y = _point(annotation)
        gathered.rows.append(row._replace(coordinates=[[[(float(x), float(y))]]], geometry="Point"))


def _point(annotation: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the first key point that is labelled, else the middle of the box."""
    numbers = annotation.get("keypoints") or []
    if len(numbers) % 3:  # pairs of x and y
        return numbers[0], numbers[1]
    for x, y, visibility in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        if visibility > 0:
            return x, y
    x, y, width, height = annotation["bbox"]
    return x + width / 2, y + height / 2


def outline_of_runs(segmentation: dict[str, Any]) -> shapely.Geometry | None:
    """Return the outline of a mask ``{"size": [height, width], "counts": …}``; None if it is empty.

    >>> outline_of_runs({"size": [2, 3], "counts": [2, 2, 2]}).wkt
    'POLYGON ((1 0, 2 0, 2 2, 1 2, 1 0))'
    >>> outline_of_runs({"size": [2, 3], "counts": "222"}).wkt
    'POLYGON ((1 0, 2 0, 2 2, 1 2, 1 0))'
    """
    height, width = (int(side) for side in segmentation["size"])
    if not 0 <= height * width <= MOST_PIXELS:
        raise ValueError(f"its mask is {width} × {height} pixels")
    counts = segmentation["counts"]
    runs = _unpacked(counts) if isinstance(counts, str) else np.array(counts, np.int64)
    if runs.ndim != 1 or (runs < 0).any() or runs.sum() != height * width:
        raise ValueError(f"its run lengths do not add up to {height} × {width} pixels")
    ends = np.cumsum(runs)
    starts, stops = (ends - runs)[1::2], ends[1::2]
    some = stops > starts
    if not some.any():
        return None
    first, last = starts[some].min() // height, (stops[some].max() - 1) // height
    mask = np.zeros((last - first + 1) * height, np.uint8)  # only the columns that the runs touch
    for start, stop in zip(starts - first * height, stops - first * height, strict=True):
        mask[start:stop] = 1
    outline = trace(mask.reshape(-1, height).T)[2][0]
    return shapely.transform(outline, lambda xy: xy + np.array([first, 0]))


def _unpacked(text: str) -> NDArray[np.int64]:
    """Decode compressed run lengths: five bits a character, differences from the third run on."""
    counts: list[int] = []
    value, shift = 0, 0
    for character in text.encode("ascii"):
        code = character - 48
        if not 0 <= code < 64 or shift > 60:
            raise ValueError("its run lengths are not coded as COCO does")
        value |= (code & 31) << shift
        shift += 5
        if not code & 32:
            if code & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value, shift = 0, 0
    return np.array(counts, np.int64)


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write one image with its categories and annotations; a point is a key point."""
    width, height = options.size_px or cells.extent_px
    colors = [{}] * len(cells.classes) if cells.colors is None else [{"color": each} for each in cells.colors]
    head = {
        "images": [{"id": 1, "file_name": "", "width": width, "height": height}],  # sniffed by this first key
        MEMBER: {"mpp": cells.mpp, "regions": [region.wkt for region in cells.regions]},
        "categories": [
            {"id": label, "name": name, "keypoints": ["centre"], "skeleton": []} | color
            for label, (name, color) in enumerate(zip(cells.classes, colors, strict=True), 1)
        ],
    }
    file.write(orjson.dumps(head)[:-1] + b',"annotations":[')
    for start in range(0, len(cells), BATCH_ROWS):
        part = _annotations(cells[start : start + BATCH_ROWS], start, options)
        file.write((b",\n" if start else b"\n") + orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    file.write(b"\n]}\n")
    options.count_lost(cells, "nucleus", "name", "region_notes")


def _annotations(cells: Cells, start: int, options: WriteOptions) -> list[dict[str, Any]]:
    outlines = np.full(len(cells), None) if cells.outline is None else cells.outline
    rings = rings_of(outlines)
    options.losses.count("holes in outlines filled", len(rings.rings) - len(rings.polygons))
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
