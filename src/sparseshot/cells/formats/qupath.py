"""QuPath's GeoJSON as a table of cells."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import filled_ids
from sparseshot.cells.formats.json_stream import Batch, FeatureStream
from sparseshot.cells.formats.options import ReadOptions, Source
from sparseshot.cells.formats.qupath_forms import Forms
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE, Outlines, build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

SCORE = "Detection probability"
"""The measurement that holds the score; QuPath's own detectors call it so."""
MEMBER = "sparseshot"
"""A member of the collection, which QuPath passes over, for what its features cannot hold."""
GREY = (128, 128, 128)
"""The colour of a class without one, where others have one."""


def read(source: Source, options: ReadOptions) -> Cells:
    """Read a collection, an array of features or a single one; each point of a multipoint is a cell."""
    stream = FeatureStream(source.file, source.name)
    forms = Forms(source.name, stream.mark, options.exhaustive_class)
    tables = [_cells(batch, forms, options.repairs) for batch in stream]
    for what, number in Counter(forms.left_out).items():
        options.repairs.count(what, number if what else 0)
    cells = Cells.concatenate(tables or [Cells([], classes=(), id=np.empty(0, "S1"))])
    del tables
    own = stream.frame.get(MEMBER) if isinstance(stream.frame, dict) else None
    if isinstance(own, dict):
        cells = _with_member(cells, own, forms, source.name)
    known = [forms.colors.get(name) for name in cells.classes]
    measurements = dict(cells.measurements)
    score = measurements.pop(SCORE, None)
    if score is not None and not (np.nanmin(score) >= 0 and np.nanmax(score) <= 1):
        measurements[SCORE], score = score, None
    ids = None if cells.id is None else filled_ids(cells.id, options.repairs)
    return replace(
        cells,
        colors=tuple(color or GREY for color in known) if any(known) else None,
        id=ids.astype(np.int64) if ids is not None and forms.ids_are_numbers else ids,
        measurements=measurements,
        score=None if score is None else np.where(np.isnan(score), 1, score),
    )


def _cells(batch: Batch, forms: Forms, repairs: Repairs) -> Cells:
    """Build the table of a batch; what is no cell is left out and counted, a multipoint is several."""
    every = forms.objects(batch)
    wanted = np.zeros(len(batch.depths), bool)
    wanted[every.shape] = True
    wanted[every.nucleus[every.nucleus >= 0]] = True
    outlines = build_outlines(batch.shapes, repairs, wanted=wanted & (batch.depths >= 3))
    repairs.count("empty geometries left out", (batch.depths[every.shape] == 0).sum())
    regions = outlines.shapes[every.shape[every.is_region]]
    objects = every.only(~every.is_region)

    row, nth, xy = _places(batch, objects.shape, outlines)
    finite = (np.abs(xy) <= FARTHEST_PX).all(axis=1)
    repairs.count(NOT_FINITE, (~finite).sum())
    row, nth, xy = row[finite], nth[finite], xy[finite]
    ids = objects.id[row]
    several = batch.depths[objects.shape[row]] == 2
    if several.any():
        forms.ids_are_numbers = False
        parts = zip(ids.tolist(), several.tolist(), nth.tolist(), strict=True)
        ids = np.array([b"%b#%d" % (name, k) if name and s else name for name, s, k in parts], np.bytes_)
    nuclei = outlines.shapes[objects.nucleus[row]]
    nuclei[objects.nucleus[row] < 0] = None
    return Cells(
        xy,
        classes=tuple(forms.classes),
        label=objects.label[row],
        outline=_some(outlines.shapes[objects.shape[row]]),
        id=ids,
        regions=regions[~shapely.is_missing(regions)],
        measurements=_measurements(batch, objects.feature[row], objects.layout[row], forms),
        kind=objects.kind[row],
        nucleus=_some(nuclei),
    )


def _places(
    batch: Batch, shape: NDArray[np.int64], outlines: Outlines
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return for each cell the object it comes from, which of its points it is, and its place."""
    is_point = batch.depths[shape] < 3
    begin = batch.shapes.rings[batch.shapes.polygons[batch.shapes.outlines]]
    number = np.where(is_point, np.diff(begin)[shape], ~np.isnan(outlines.places[shape, 0]))
    row = np.repeat(np.arange(len(shape)), number)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    xy = outlines.places[shape[row]]
    xy[is_point[row]] = batch.shapes.xy[(begin[shape[row]] + nth)[is_point[row]]]
    return row, nth, xy


def _measurements(
    batch: Batch, feature: NDArray[np.int64], layout: NDArray[np.int64], forms: Forms
) -> dict[str, NDArray[np.float64]]:
    columns: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.full(len(feature), np.nan))
    every = list(forms.layouts)
    for number in np.unique(layout).tolist():
        rows = np.flatnonzero(layout == number)
        first = batch.first_value[feature[rows]]
        for name, value in every[number]:
            columns[name][rows] = batch.values[first + value]
    return dict(columns)


def _some(shapes: NDArray[np.object_]) -> NDArray[np.object_] | None:
    return None if shapely.is_missing(shapes).all() else shapes


def _with_member(cells: Cells, own: dict[str, Any], forms: Forms, where: str) -> Cells:
    """Take classes without a cell, the order of all, and µm per pixel from our own member."""
    try:
        named = [forms.class_name(each) for each in own.get("classes", ())]
        order = tuple(dict.fromkeys([*(name for name in named if name), *cells.classes]))
        place = np.array([*(order.index(name) for name in cells.classes), -1], np.int16)
        mpp = own.get("mpp")
        return replace(cells, classes=order, label=place[cells.label], mpp=mpp and float(mpp), colors=None)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(where, f"its member {MEMBER!r} cannot be understood: {error}") from None
