"""What people decided about found cells: counts and files are found − rejected + marked.

Where somebody marked, the mark decides, whether it says *cell* or *not a cell*; inside an exhaustive region
only marks count.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.active import add_review, is_proposed, review_region
from sparseshot.cells import Cells
from sparseshot.cells.near import is_inside, is_near
from sparseshot.cells.neighbours import neighbour_measurements
from sparseshot.cells.table import KINDS
from sparseshot.metrics.quality import Evidence
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.journal import Event
from sparseshot.studio.marks import FIRST_CLASS, NEGATIVE, Item, MarkBook, items_of, place_of


def counted_cells(found: FoundCells, marks: Cells) -> FoundCells:
    """Return the index of what is counted; a mark counts at every threshold.

    Args:
        found: what a model found, with the kinds to count.
        marks: marks and exhaustive regions of the slide.
    """
    cells = decided_cells(found.cells, replace(marks, score=None, outline=None))
    return FoundCells.of(cells, mpp=found.mpp)


def region_evidence(found: FoundCells, marks: Cells, regions: Sequence[shapely.Geometry]) -> Evidence:
    """Compare what was found in reviewed regions with the cells that a person says are there.

    Args:
        found: what a model has found that has not learned from these regions.
        marks: of the slide.
        regions: the regions.
    """
    evidence, cells = Evidence(), marks[~_is_negative(marks)]
    for region in regions:
        area = np.array([region], object)
        seen = found.cells[found.rows_in(region.bounds, threshold=0)]
        evidence += Evidence.of_cells(seen, cells[is_inside(cells.xy, area)], area)
    return evidence


def _is_negative(marks: Cells) -> NDArray[np.bool_]:
    """Return which marks say that there is no cell."""
    return np.isin(np.array([*marks.classes, ""], object)[marks.label], (NEGATIVE, REJECTED))


def is_cell(item: Item) -> bool:
    """Return whether an item is the mark of a cell."""
    return "class" in item and item["class"] not in {NEGATIVE, REJECTED}


def decided_cells(found: Cells, marks: Cells) -> Cells:
    """Return found cells as people corrected them: those about which no mark decides, and the marks.

    >>> found = Cells([[10, 10], [50, 50], [90, 90]], score=[0.9, 0.8, 0.7], mpp=0.5)
    >>> marks = Cells([[11, 10], [50, 51]], classes=("cell", "not a cell"), label=[0, 1], mpp=0.5)
    >>> decided_cells(found, marks).xy.tolist()
    [[90.0, 90.0], [11.0, 10.0]]
    """
    reach = MATCH_RADIUS_UM / (found.mpp or 1.0)
    is_decided = is_near(found.xy, marks.xy, radius=reach)
    if len(marks.regions):
        is_decided |= is_inside(found.xy, marks.regions)
    cells = marks[~_is_negative(marks)]
    names = np.array([*cells.classes, ""], object)[cells.label]
    beneath, near = np.full(len(cells), -1), np.flatnonzero(is_decided)  # rows of found cells under marks
    if len(near) and len(cells):
        distance, nearest = KDTree(found.xy[near]).query(cells.xy, distance_upper_bound=reach)
        beneath[np.isfinite(distance)] = near[nearest[np.isfinite(distance)]]
    if found.classes != (FIRST_CLASS,):
        unnamed = (names == FIRST_CLASS) & (beneath >= 0)
        names[unnamed] = np.array(found.classes, object)[found.label[beneath[unnamed]]]
    used = tuple(dict.fromkeys(names.tolist()))
    known = dict(
        zip((*marks.classes, *found.classes), (*(marks.colors or ()), *(found.colors or ())), strict=False)
    )
    outlines = np.full(len(cells), None) if cells.outline is None else cells.outline
    if found.outline is not None:
        outlines = np.where((beneath >= 0) & shapely.is_missing(outlines), found.outline[beneath], outlines)
    plain = Cells(
        cells.xy,
        classes=used,
        label=[used.index(name) for name in names],
        score=cells.score,
        outline=outlines if any(outlines) else None,
        mpp=found.mpp,
        colors=[known[name] for name in used] if marks.colors and found.colors else None,
        measurements={
            name: np.where(beneath >= 0, column[beneath], np.nan) if len(found) else np.empty(0)
            for name, column in found.measurements.items()
        },
    )
    both = Cells.concatenate([found[~is_decided], plain]) if len(plain) else found[~is_decided]
    return replace(both, kind=np.full(len(both), KINDS.index("detection")))


def with_neighbours(cells: Cells, *, mpp: float) -> Cells:
    """Return cells with their neighbours measured anew, which decisions and kinds have changed."""
    kept = {
        name: column
        for name, column in cells.measurements.items()
        if not name.startswith(("Distance to detection ", "Neighbors within "))
    }
    around = neighbour_measurements(cells.xy, cells.label, classes=cells.classes, mpp=mpp)
    return replace(cells, measurements=kept | around)


def judged(book: MarkBook, slide: str, found: Cells, *, accept: bool) -> list[Item]:
    """Return found cells as marks with their scores, without those within 3 µm of a mark.

    Args:
        book: known marks.
        slide: of the cells.
        found: cells that a person has accepted or rejected.
        accept: whether they are cells; otherwise they become certain negatives.
    """
    places = [place_of(item) for item in book.items(slide) if "class" in item]
    found = found[~is_near(found.xy, places, radius=MATCH_RADIUS_UM / (found.mpp or 1.0))]
    items = items_of(found)
    if accept:
        return items
    return [{"class": NEGATIVE, "at": [round(x, 2), round(y, 2)], "score": item.get("score", 0.9999)}
            for item, (x, y) in zip(items, found.xy.tolist(), strict=True)]  # fmt: skip


def reviewed(
    book: MarkBook, slide: str, region: shapely.Polygon, found: Cells, *, by: str, model: str
) -> Event:
    """Return the change of the marks that makes a region exhaustive.

    Cells found there are accepted, except where a mark says that there is none.

    Args:
        book: known marks.
        slide: of the region.
        region: in level-0 pixels.
        found: what the model found in it.
        by: name of the person.
        model: fingerprint of the model.
    """
    before = [item for item in book.items(slide) if "count" not in item]
    marks = book.cells(slide, mpp=found.mpp)
    is_negative = _is_negative(marks)
    removed = is_near(found.xy, marks.xy[is_negative], radius=MATCH_RADIUS_UM / (found.mpp or 1.0))
    by_hand = marks[~(is_negative | is_proposed(marks))]
    done = review_region(region, found, removed=removed, added=by_hand, by=by, model=model)
    after = items_of(add_review(marks, done))
    return {"slide": slide, **_difference(before, after)}


def _difference(before: Sequence[Item], after: Sequence[Item]) -> Event:
    """Return the items to remove and to add."""
    wanted = {_content(item): item for item in after}
    known = {_content(item): item["id"] for item in before}
    return {
        "remove": [name for content, name in known.items() if content not in wanted],
        "add": [item for content, item in wanted.items() if content not in known],
    }


def _content(item: Item) -> str:
    """Return an item without its id, numbers as :func:`items_of` rounds them."""
    plain = {name: value for name, value in item.items() if name != "id"}
    for name in ("at", "outline", "region"):
        if name in plain:
            plain[name] = np.round(np.array(plain[name], float), 2).tolist()
    return repr(sorted(plain.items()))
