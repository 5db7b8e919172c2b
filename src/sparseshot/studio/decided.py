"""What people decided about found cells: counts and files are found − rejected + marked.

Where somebody marked, the mark decides, whether it says *cell* or *not a cell*; inside an exhaustive region
only marks count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.near import is_inside, is_near
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.found_cells import Area, FoundCells
from sparseshot.studio.marks import NEGATIVE, Item, place_of, polygon_of


@dataclass
class Decisions:
    """Counts of found cells with what people decided; each mark is looked up once.

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
        area: Area | None,
    ) -> dict[str, int]:
        """Return the number of cells of each class.

        Args:
            items: marks and exhaustive regions of the slide.
            rows: found cells of at least the threshold in the area; None for the whole slide.
            threshold: lowest score of a found cell.
            area: where to count; None for the whole slide.
        """
        own = [self._of(item) for item in items]
        decided = np.unique(np.concatenate([rows for rows, _ in own])) if own else np.empty(0, np.intp)
        decided = decided[self.found.score[decided] >= threshold]
        if rows is None:
            total = Counter(self.found.counts(threshold=threshold))
        else:
            total = Counter(self.found.counts_of(rows))
            decided = np.intersect1d(decided, rows, assume_unique=True)
        total.subtract(self.found.counts_of(decided))
        marked = (
            item["class"]
            for item, (_, place) in zip(items, own, strict=True)
            if place is not None and is_cell(item) and _is_in(place, area)
        )
        total.update(marked)
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
                rows = rows[np.hypot(*(self.found.xy[rows] - place).T) <= reach]
            self._rows[item["id"]] = rows, place
        return self._rows[item["id"]]


def is_cell(item: Item) -> bool:
    """Return whether an item is the mark of a cell."""
    return "class" in item and item["class"] not in {NEGATIVE, REJECTED}


def _is_in(place: tuple[float, float], area: Area | None) -> bool:
    return area is None or (area[0] <= place[0] < area[2] and area[1] <= place[1] < area[3])


def decided_cells(found: Cells, marks: Cells) -> Cells:
    """Return found cells as people corrected them: those about which no mark decides, and the marks.

    >>> found = Cells([[10, 10], [50, 50], [90, 90]], score=[0.9, 0.8, 0.7], mpp=0.5)
    >>> marks = Cells([[11, 10], [50, 51]], classes=("cell", "not a cell"), label=[0, 1], mpp=0.5)
    >>> decided_cells(found, marks).xy.tolist()
    [[90.0, 90.0], [11.0, 10.0]]
    """
    is_decided = is_near(found.xy, marks.xy, radius=MATCH_RADIUS_UM / (found.mpp or 1.0))
    if len(marks.regions):
        is_decided |= is_inside(found.xy, marks.regions)
    names = np.array([*marks.classes, ""])[marks.label]
    cells = marks[~np.isin(names, (NEGATIVE, REJECTED))]
    used = tuple(name for name, count in cells.counts().items() if count)
    plain = Cells(
        cells.xy,
        classes=used,
        label=[used.index(name) for name in names[~np.isin(names, (NEGATIVE, REJECTED))]],
        score=cells.score,
        outline=cells.outline,
        mpp=found.mpp,
        colors=[dict(zip(cells.classes, cells.colors or (), strict=False))[name] for name in used]
        if cells.colors
        else None,
    )
    return Cells.concatenate([found[~is_decided], plain]) if len(plain) else found[~is_decided]
