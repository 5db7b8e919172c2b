"""What people decided about found cells: counts and files are found − rejected + marked.

Where somebody marked, the mark decides, whether it says *cell* or *not a cell*; inside an exhaustive region
only marks count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from sparseshot.studio.marks import FIRST_CLASS, NEGATIVE, Item, MarkBook, items_of, place_of, polygon_of


@dataclass
class Decisions:
    """Counts of found cells with what people decided; each mark is looked up once.

    A mark that does not name a kind has that of the found cell it lies on.

    Attributes:
        found: what a model found.
    """

    found: FoundCells
    _rows: dict[str, tuple[NDArray[np.intp], tuple[float, float] | None]] = field(default_factory=dict)

    def counts(
        self,
        items: Sequence[Item],
        rows: NDArray[np.intp] | None = None,
        *,
        threshold: float,
        area: shapely.Polygon | None,
        kinds: FoundCells | None = None,
    ) -> dict[str, int]:
        """Return the number of cells of each class.

        Args:
            items: marks and exhaustive regions of the slide.
            rows: found cells of at least the threshold in the area; None for the whole slide.
            threshold: lowest score of a found cell.
            area: where to count; None for the whole slide.
            kinds: the found cells with the classes to count; None for their own.
        """
        items = [item for item in items if "count" not in item]
        found, own = kinds or self.found, [self._of(item) for item in items]
        decided = np.unique(np.concatenate([rows for rows, _ in own])) if own else np.empty(0, np.intp)
        decided = decided[self.found.score[decided] >= threshold]
        if rows is None:
            total = Counter(found.counts(threshold=threshold))
        else:
            total = Counter(found.counts_of(rows))
            decided = np.intersect1d(decided, rows, assume_unique=True)
        total.subtract(found.counts_of(decided))
        total.update(
            found.classes[found.label[near[0]]]
            if item["class"] == FIRST_CLASS and len(near)
            else item["class"]
            for item, (near, place) in zip(items, own, strict=True)
            if place is not None and is_cell(item) and (area is None or shapely.intersects_xy(area, *place))
        )
        return dict(total)

    def _of(self, item: Item) -> tuple[NDArray[np.intp], tuple[float, float] | None]:
        """Return the found cells that a mark or region decides about, and the place of a mark."""
        if item["id"] not in self._rows:
            place = None
            if "region" in item:
                region = polygon_of(item["region"])
                rows = self.found.rows_in(region.bounds, threshold=0)
                rows = rows[shapely.contains_xy(region, self.found.xy[rows].astype(np.float64))]
            else:
                x, y = place = place_of(item)
                reach = MATCH_RADIUS_UM / self.found.mpp
                rows = self.found.rows_in((x - reach, y - reach, x + reach, y + reach), threshold=0)
                distance = np.hypot(*(self.found.xy[rows] - place).T)
                rows = rows[np.argsort(distance)][: np.count_nonzero(distance <= reach)]
            self._rows[item["id"]] = rows, place
        return self._rows[item["id"]]


def region_evidence(found: FoundCells, items: Sequence[Item]) -> Evidence:
    """Compare what was found in reviewed regions with the cells that a person says are there.

    Args:
        found: what a model has found that has not learned from these regions.
        items: the regions, and the marks of their slide.
    """
    shapes = [polygon_of(item["region"]) for item in items if "region" in item]
    evidence = Evidence()
    marks = np.array([place_of(item) for item in items if is_cell(item)], float).reshape(-1, 2)
    for shape in shapes:
        rows = found.rows_in(shape.bounds, threshold=0)
        seen = Cells(found.xy[rows], score=found.score[rows], mpp=found.mpp)
        regions = np.array([shape], object)
        own = Cells(marks[is_inside(marks, regions)], mpp=found.mpp)
        evidence += Evidence.of_cells(seen, own, regions)
    return evidence


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
    names = np.array([*marks.classes, ""], object)[marks.label]
    is_cell_mark = ~np.isin(names, (NEGATIVE, REJECTED))
    cells, names = marks[is_cell_mark], names[is_cell_mark]
    beneath = np.full(len(cells), -1)  # rows of the found cells on which marks lie
    if len(found) and len(cells):
        distance, nearest = KDTree(found.xy).query(cells.xy, distance_upper_bound=reach)
        beneath = np.where(np.isfinite(distance), nearest, -1)
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
    is_negative = np.isin(np.array([*marks.classes, ""])[marks.label], (NEGATIVE, REJECTED))
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
