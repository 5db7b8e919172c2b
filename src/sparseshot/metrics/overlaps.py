"""Overlap of cells with an area: outlines and label images."""

from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.metrics.counts import Counts
from sparseshot.metrics.matching import Candidates, Matching

_TIGHT_IOU = 0.7

INTERSECTED_AT_ONCE = 50_000
"""Pairs of outlines whose intersection is held in memory at a time."""


@dataclass(frozen=True, eq=False)
class Overlaps:
    """The pairs of true and found areas that overlap.

    Attributes:
        truth: ``(P,)`` index of the true area of each pair.
        found: ``(P,)`` index of the found area of each pair.
        common: ``(P,)`` their common area, above 0.
        truth_area: ``(N,)`` of every true area.
        found_area: ``(M,)`` of every found area.
    """

    truth: NDArray[np.intp]
    found: NDArray[np.intp]
    common: NDArray[np.float64]
    truth_area: NDArray[np.float64]
    found_area: NDArray[np.float64]

    @property
    def iou(self) -> NDArray[np.float64]:
        """Common area over united area, of each pair."""
        united = self.truth_area[self.truth] + self.found_area[self.found] - self.common
        return self.common / united

    def match(self, *, iou: float = 0.5) -> Matching:
        """Match as many as possible, one to one, of at least this IoU, and of those at the highest sum."""
        enough, shape = self.iou >= iou, (len(self.truth_area), len(self.found_area))
        candidates = Candidates(self.truth[enough], self.found[enough], 1 - self.iou[enough], shape)
        return Matching.of_partners(*candidates.matched(), found_total=len(self.found_area))


@dataclass(frozen=True)
class AreaCounts(Counts):
    """Counts for panoptic quality and the aggregated Jaccard index; images add up.

    Both need whole objects, so count whole images, not tiles that cut cells. Pairs with an IoU above one half
    are the true positives, and :attr:`f1` is the recognition quality.

    Attributes:
        iou_sum: sum of the IoU of these pairs.
        common: sum over true areas of the intersection with the found area of highest IoU.
        united: sum over true areas of the union with it, plus the found areas that are no one's best.
        tight: number of these pairs with an IoU of at least 0.7.
    """

    iou_sum: float = 0.0
    common: float = 0.0
    united: float = 0.0
    tight: int = 0

    @property
    def tight_f1(self) -> float:
        """F1 of areas that are right with an IoU of at least 0.7."""
        missed = self.tp - self.tight
        return Counts(self.tight, self.fp + missed, self.fn + missed).f1

    @property
    def recognition_quality(self) -> float:
        """The name of :attr:`f1` in panoptic quality."""
        return self.f1

    @property
    def segmentation_quality(self) -> float:
        """Mean IoU of the pairs; nan where there is none."""
        return self.iou_sum / self.tp if self.tp else float("nan")

    @property
    def panoptic_quality(self) -> float:
        """Σ IoU / (tp + fp/2 + fn/2) (Kirillov et al., CVPR 2019); 1 where there is nothing.

        It is the recognition quality times the segmentation quality.
        """
        total = self.tp + (self.fp + self.fn) / 2
        return self.iou_sum / total if total else 1.0

    @property
    def aggregated_jaccard_index(self) -> float:
        """AJI as Kumar et al. (TMI 2017) define it; 1 where there is nothing.

        One found area may be the best of several true ones, as in the original.
        """
        return self.common / self.united if self.united else 1.0


def area_counts(overlaps: Overlaps) -> AreaCounts:
    """Count areas for panoptic quality and the aggregated Jaccard index.

    >>> truth, found = np.array([[1, 1, 1, 0, 2, 2]]), np.array([[0, 5, 5, 5, 0, 0]])
    >>> counts = area_counts(overlaps_of_labels(truth, found))
    >>> counts.tp, counts.fp, counts.fn, counts.common, counts.united  # 1 and 5 share two pixels of four
    (0, 1, 2, 2.0, 6.0)
    """
    order = np.lexsort((-overlaps.iou, overlaps.truth))
    has_best, first = np.unique(overlaps.truth[order], return_index=True)
    best = order[first]
    common = float(np.sum(overlaps.common[best]))
    alone = np.delete(overlaps.truth_area, has_best)
    unused = np.delete(overlaps.found_area, np.unique(overlaps.found[best]))
    joined = overlaps.truth_area[has_best] + overlaps.found_area[overlaps.found[best]]

    matching = overlaps.match(iou=float(np.nextafter(0.5, 1)))
    return AreaCounts(
        **vars(matching.counts),
        iou_sum=float(np.sum(1 - matching.distance)),
        common=common,
        united=float(np.sum(joined) - common + np.sum(alone) + np.sum(unused)),
        tight=int(np.sum(matching.distance <= 1 - _TIGHT_IOU)),
    )


def overlaps_of_labels(truth: NDArray[np.integer], found: NDArray[np.integer]) -> Overlaps:
    """Overlay two label images of one shape, 0 being background; areas are pixels, in order of the labels."""
    truth, found = np.asarray(truth), np.asarray(found)
    if truth.shape != found.shape:
        raise InputError(f"label images of shapes {truth.shape} and {found.shape}; bring them to one size")
    for name, labels in (("true", truth), ("found", found)):
        if labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
            raise InputError(f"the {name} labels are {labels.dtype}; give whole numbers, 0 for background")
    truth_ids, truth_area = np.unique(truth[truth > 0], return_counts=True)
    found_ids, found_area = np.unique(found[found > 0], return_counts=True)
    both = (truth > 0) & (found > 0)
    row, column = np.searchsorted(truth_ids, truth[both]), np.searchsorted(found_ids, found[both])
    pairs, common = np.unique(row * max(len(found_ids), 1) + column, return_counts=True)
    row, column = np.divmod(pairs, max(len(found_ids), 1))
    return Overlaps(row, column, *(area.astype(np.float64) for area in (common, truth_area, found_area)))


def overlaps_of_outlines(truth: Cells, found: Cells) -> Overlaps:
    """Overlay the outlines of two tables of cells; areas are in level-0 pixels."""
    truth_outline, found_outline = _checked_outlines(truth, "true"), _checked_outlines(found, "found")
    column, row = shapely.STRtree(truth_outline).query(found_outline)
    common = np.empty(len(row))
    for start in range(0, len(row), INTERSECTED_AT_ONCE):
        part = slice(start, start + INTERSECTED_AT_ONCE)
        common[part] = shapely.area(
            shapely.intersection(truth_outline[row[part]], found_outline[column[part]])
        )
    some = common > 0
    areas = (shapely.area(outlines) for outlines in (truth_outline, found_outline))
    return Overlaps(row[some], column[some], common[some], *areas)


def _checked_outlines(cells: Cells, name: str) -> NDArray[np.object_]:
    """Return outlines that can be intersected: those that cross themselves are made valid first."""
    if cells.outline is None and len(cells):
        raise InputError(f"the {name} cells have no outlines; match them by match_cells within a radius")
    outlines = np.empty(0, object) if cells.outline is None else cells.outline.copy()
    missing = shapely.is_missing(outlines) | shapely.is_empty(outlines)
    if missing.any():
        raise InputError(
            f"{name} cell {int(np.argmax(missing))} has no outline; leave out cells that are points"
        )
    crossed = ~shapely.is_valid(outlines)
    outlines[crossed] = shapely.make_valid(outlines[crossed])
    return outlines
