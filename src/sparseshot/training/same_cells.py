"""Marks of one cell, in one file or by several people, as one mark."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sparseshot.cells import Cells
from sparseshot.metrics import match_points
from sparseshot.models.labelling import REJECTED
from sparseshot.training.mark_checks import warn

SAME_CLICK_UM = 1.0
"""Two points of one file this near are one cell. No two of 21,000 outlined nuclei of TNBC and MoNuSeg have
centres this near, and 51 pairs of 49,000 points of BRCA-M2C and CRCHisto, most of them double clicks."""

SAME_CELL_UM = 3.0
"""Points of two files this near are one cell, if neither has a nearer partner."""

_SHARED = 0.5
"""Two outlines are of one cell if they share more than this of the larger."""

_MOST_NAMED = 20


def merge_marks(tables: Sequence[Cells], slide: str) -> Cells:
    """Return the marks of one slide from several files, with one mark for each cell.

    Of several marks of a cell the first stays, or the first with an outline. Warn of their number, and name
    each cell with marks of two classes. Rejected predictions are not marks of cells, and stay.

    Args:
        tables: the marks of each file, in level-0 pixels.
        slide: its name, for messages.

    >>> import warnings
    >>> clicks, others = Cells([[10, 10], [11, 10], [90, 90]], mpp=0.5), Cells([[14, 11]], mpp=0.5)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     len(merge_marks([clicks], "a.svs")), len(merge_marks([clicks, others], "a.svs"))
    (2, 2)
    """
    marks = Cells.concatenate(tables)
    names = np.array([*marks.classes, "unclassified"], object)[marks.label]
    outlined = np.zeros(len(marks), bool) if marks.outline is None else ~shapely.is_missing(marks.outline)
    kept = names != REJECTED
    disagreed: list[str] = []
    starts = np.cumsum([0, *map(len, tables)]).tolist()

    def merge(rows: NDArray[np.intp], others: NDArray[np.intp] | None) -> None:
        for one, other in _of_one_cell(marks, rows, others, outlined):
            if kept[one] and kept[other]:
                stays = other if outlined[other] and not outlined[one] else one
                kept[one], kept[other] = stays == one, stays == other
                if names[one] != names[other]:
                    x, y = marks.xy[stays]
                    disagreed.append(
                        f"{names[one]} and {names[other]} at ({x:.0f}, {y:.0f}), learned as {names[stays]}"
                    )

    for start, end in pairwise(starts):
        merge(start + np.flatnonzero(kept[start:end]), None)
        merge(np.flatnonzero(kept[:start]), start + np.flatnonzero(kept[start:end]))
    kept |= names == REJECTED
    again = int((~kept).sum())
    if not again:
        return marks
    what = "1 mark is of a cell" if again == 1 else f"{again:,} marks are of cells"
    warn(f"{slide}: {what} that another mark is of; each cell counts once")
    if disagreed:
        what = "1 cell has" if len(disagreed) == 1 else f"{len(disagreed):,} cells have"
        rest = len(disagreed) - _MOST_NAMED
        listed = disagreed[:_MOST_NAMED] + ([f"and {rest:,} more"] if rest > 0 else [])
        warn(f"{slide}: {what} marks of two classes: {'; '.join(listed)}")
    return marks[kept]


def _of_one_cell(
    marks: Cells, rows: NDArray[np.intp], others: NDArray[np.intp] | None, outlined: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Return the pairs of marks of one cell: among rows of one file, or of rows and others, one to one."""
    second = rows if others is None else others
    if not len(rows) or not len(second):
        return []
    scale = marks.mpp or 1.0
    if others is None:
        near = cKDTree(marks.xy[rows]).query_pairs(SAME_CLICK_UM / scale, output_type="ndarray")
        pairs = rows[np.sort(near, axis=1)]
    else:
        matching = match_points(marks.xy[rows], marks.xy[others], radius=SAME_CELL_UM / scale)
        pairs = np.stack([rows[matching.truth], others[matching.found]], axis=1)
    pairs = pairs[~outlined[pairs].all(axis=1)]  # outlines near each other may be of two cells that touch
    if marks.outline is not None:
        one, other = shapely.STRtree(marks.outline[second]).query(marks.outline[rows], predicate="intersects")
        one, other = rows[one], second[other]
        one, other = one[one < other], other[one < other]
        shared = shapely.area(shapely.intersection(marks.outline[one], marks.outline[other]))
        larger = np.maximum(shapely.area(marks.outline[one]), shapely.area(marks.outline[other]))
        pairs = np.concatenate([pairs, np.stack([one, other], axis=1)[shared > _SHARED * larger]])
    return [(one, other) for one, other in sorted(pairs.tolist())]
