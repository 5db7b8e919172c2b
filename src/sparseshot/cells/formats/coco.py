"""COCO JSON: polygons, run lengths, key points or boxes of one image."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES
from sparseshot.cells.formats.geojson_stream import parsed
from sparseshot.cells.formats.options import ReadOptions, Source
from sparseshot.cells.formats.run_lengths import outline_of_runs
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, offsets
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

MEMBER = "sparseshot"
"""A member, which others pass over, for what COCO has no place for: µm per pixel and exhaustive regions."""
_NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError, shapely.GEOSException)


def read(source: Source, options: ReadOptions) -> Cells:
    """Read the annotations of one image; a bare list of results is read too."""
    try:
        content = parsed(source.file.read())
        content = {"annotations": content} if isinstance(content, list) else content
        categories = {each["id"]: each for each in content.get("categories", ())}
        annotations = _of_image(content, options.image, source.name)
        own = content.get(MEMBER, {})
        regions = shapely.from_wkt(np.array(own.get("regions", []), object))
        mpp = own.get("mpp")
        names = [str(each["name"]) for each in categories.values()]
        known = [each["color"] for each in categories.values() if each.get("color")]
        colors = tuple((int(r), int(g), int(b)) for r, g, b in known) if len(known) == len(names) else None
    except _NOT_UNDERSTOOD as error:
        raise FormatError(source.name, f"is not COCO: {_reason(error)}") from None
    gathered = _Gathered()
    for number, annotation in enumerate(annotations):
        try:
            if annotation.get("iscrowd") == 1:
                options.repairs.count("crowds left out")
            else:
                gathered.add(annotation, categories, options.repairs)
        except _NOT_UNDERSTOOD as error:
            what = annotation.get("id", number) if isinstance(annotation, dict) else number
            reason = _reason(error)
            raise FormatError(source.name, f"annotation {what} cannot be understood: {reason}") from None
    return replace(gathered.cells(names, options.repairs), mpp=mpp, regions=regions, colors=colors or None)


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _of_image(content: Mapping[str, Any], image: str | int | None, where: str) -> list[Any]:
    annotations: list[Any] = content["annotations"]
    known = {each["id"]: str(each.get("file_name", each["id"])) for each in content.get("images", ())}
    ids = dict.fromkeys(each["image_id"] for each in annotations if "image_id" in each)
    known = {each: known.get(each, str(each)) for each in (*known, *ids)}
    if image is None:
        if len(ids) > 1:
            some = ", ".join([*known.values()][:5])
            raise FormatError(where, f"holds cells of {len(ids)} images ({some}, …); say which: image=")
        return annotations
    wanted = [each for each, name in known.items() if image in (each, name) or str(image) == str(each)]
    if not wanted:
        raise FormatError(where, f"has no image {image!r}; it has {', '.join([*known.values()][:20])}")
    return [each for each in annotations if each.get("image_id") == wanted[0]]


@dataclass
class _Gathered:
    """Annotations as columns; of polygons their vertices."""

    rings: list[NDArray[np.float64]] = field(default_factory=list)
    ring_counts: list[int] = field(default_factory=list)
    others: dict[int, shapely.Geometry] = field(default_factory=dict)
    points: dict[int, tuple[float, float]] = field(default_factory=dict)
    label: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    id: list[Any] = field(default_factory=list)
    measured: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, annotation: Mapping[str, Any], categories: Mapping[Any, Any], repairs: Repairs) -> None:
        """Take one annotation: its polygons or runs, else its first key point or the middle of its box."""
        segmentation = annotation.get("segmentation")
        category = annotation.get("category_id")
        if category is not None and categories and category not in categories:
            raise ValueError(f"its category {category!r} is not among the categories of the file")
        row, rings = len(self.label), []
        if isinstance(segmentation, dict):
            outline = outline_of_runs(segmentation)
            if outline is None:
                repairs.count("empty masks left out")
                return
            self.others[row] = outline
        elif segmentation:
            rings = [np.array(ring, np.float64).reshape(-1, 2) for ring in segmentation]
        elif annotation.get("keypoints"):
            x, y = annotation["keypoints"][:2]
            self.points[row] = float(x), float(y)
        else:
            x, y, width, height = annotation["bbox"]
            self.points[row] = x + width / 2, y + height / 2
        names = list(categories)
        self.rings += rings
        self.ring_counts.append(len(rings))
        self.label.append(-1 if category is None else names.index(category) if names else int(category))
        self.score.append(annotation.get("score", np.nan))
        self.id.append(annotation.get("id"))
        if len(str(self.id[-1])) > LONGEST_ID_BYTES:
            raise ValueError(f"its id is longer than {LONGEST_ID_BYTES} bytes")
        self.measured.append(annotation.get("attributes") or {})

    def cells(self, names: list[str], repairs: Repairs) -> Cells:
        """Build the table."""
        each = np.arange(len(self.rings) + 1)
        xy = np.concatenate([np.empty((0, 2)), *self.rings])
        lengths, counts = np.array([len(r) for r in self.rings]), np.array(self.ring_counts, np.int64)
        source = Rings(xy, offsets(lengths), each, offsets(counts))
        shapes, places = build_outlines(source, repairs, wanted=counts > 0)
        for row, outline in self.others.items():
            shapes[row], places[row] = outline, shapely.centroid(outline).coords[0]
        for row, point in self.points.items():
            places[row] = point
        finite = np.abs(places).max(axis=1, initial=0) <= FARTHEST_PX
        repairs.count(NOT_FINITE, sum(not finite[row] for row in self.points))
        label = np.array(self.label, np.int64)
        if not names:
            known = np.unique(label[label >= 0])
            label = np.where(label >= 0, np.searchsorted(known, label), -1)
            names = [str(number) for number in known.tolist()]
        score = np.array(self.score, np.float64)
        columns = dict.fromkeys(name for each in self.measured for name in each)
        return Cells(
            np.where(finite[:, None], places, 0),
            classes=names or ("cell",),
            label=label if names else np.zeros(len(label), np.int16),
            score=None if np.isnan(score).all() else np.where(np.isnan(score), 1, score),
            outline=None if shapely.is_missing(shapes).all() else shapes,
            id=None if None in self.id or not self.id else self.id,
            measurements={name: [_number(each.get(name)) for each in self.measured] for name in columns},
        )[finite]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
