"""What marks say about found cells, and the kinds that are learned from it.

Finding answers *is there a cell?*; this answers *which kind is it?* by a linear head on the features that the
network has at each found cell, and at the cells around it. :mod:`~sparseshot.models.kind_learning` has the
loss.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.cells import Cells
from sparseshot.cells.table import GREY, PALETTE
from sparseshot.errors import InputError, counted
from sparseshot.metrics.matching import Candidates
from sparseshot.models.kind_head import GUESS, OTHER, PROBABILITY, KindHead
from sparseshot.models.kind_learning import (
    CERTAIN_OTHER,
    UNKNOWN_KIND,
    UNMARKED,
    fit,
    learn_kinds,
    warn,
)
from sparseshot.models.labelling import REJECTED

__all__ = [
    "CERTAIN_OTHER",
    "GUESS",
    "OTHER",
    "PROBABILITY",
    "UNKNOWN_KIND",
    "UNMARKED",
    "KindHead",
    "MarkedCells",
    "fit",
    "is_any_cell",
    "kind_targets",
    "learn_kinds",
    "named_kinds",
    "rekind",
    "with_one_spelling",
]

_MATCH_UM = 3.0

_GENERIC = re.compile(r"(any |all )?(cells?|nucle(us|i)|annotations?|marks?|unclassified)", re.IGNORECASE)
"""Names that say "this is a cell", and not which."""


def is_any_cell(name: str) -> bool:
    """Return whether a class names no kind, as "cell" and "nucleus"."""
    return _GENERIC.fullmatch(name.strip()) is not None


def named_kinds(tables: Sequence[Cells], *, leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Return the kinds that marks name; classes as "cell" or "nucleus", and "Other", name none.

    >>> named_kinds([Cells([[0, 0], [9, 9]], classes=("Nucleus", "Lymphocyte"), label=[0, 1])])
    ('Lymphocyte',)
    """
    counts = [cells.counts() for cells in tables]
    names = dict.fromkeys(name for table in counts for name, count in table.items() if count)
    return tuple(name for name in names if not is_any_cell(name) and name != OTHER and name not in leave_out)


def with_one_spelling(tables: Sequence[Cells], *, spelling: Sequence[str] = ()) -> list[Cells]:
    """Return marks in which names that differ only in case are one class.

    It is spelled as in ``spelling``, otherwise as most marks spell it, with a warning.

    >>> marks = Cells([[0, 0], [1, 1]], classes=("Tumour", "tumour"), label=[0, 1])
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     with_one_spelling([marks])[0].counts()
    {'Tumour': 2}
    """
    counts: Counter[str] = Counter()
    for cells in tables:
        counts.update({name: count for name, count in cells.counts().items() if count})
    spelled = {name.casefold().strip(): name for name in spelling}
    for name, _ in counts.most_common():
        spelled.setdefault(name.casefold().strip(), name)
    changed = {name: spelled[name.casefold().strip()] for name in counts}
    changed = {name: other for name, other in changed.items() if name != other}
    if not changed:
        return list(tables)
    if not spelling:
        listed = ", ".join(f"{name!r} as {other!r}" for name, other in changed.items())
        warn(f"class names that differ only in case are learned as one: {listed}")
    return [cells.renamed(changed) for cells in tables]


def kind_targets(
    found: Cells, marks: Cells, kinds: Sequence[str], *, radius_um: float = _MATCH_UM
) -> NDArray[np.int64]:
    """Return what marks say about found cells, for :func:`learn_kinds`.

    A mark is of a found cell that it lies in, or else of one within the radius; each cell has at most one
    mark, and of marks of different classes on one cell the nearest counts, with a warning. Marks of no class,
    or of a class as "cell", do not say which kind it is. Marks of all other classes that are not among the
    kinds, and unmarked cells in exhaustive regions, are certainly "other".

    >>> found = Cells([[0, 0], [50, 0], [90, 0]], mpp=0.5)
    >>> marks = Cells([[1, 0], [51, 0]], classes=("lymphocyte", "tumour"), label=[0, 1], mpp=0.5)
    >>> kind_targets(found, marks, ["lymphocyte"])
    array([ 1,  0, -1])
    """
    target = np.full(len(found), UNMARKED)
    mpp = marks.mpp or found.mpp or 1.0
    for region in marks.regions:
        shapely.prepare(region)
        target[shapely.contains_xy(region, *found.xy.T)] = CERTAIN_OTHER
    of_class = [
        kinds.index(name) + 1 if name in kinds else UNKNOWN_KIND if is_any_cell(name) else CERTAIN_OTHER
        for name in marks.classes
    ]
    said = np.array([*of_class, UNKNOWN_KIND])[marks.label]  # the last one is for no class
    pairs = _near_or_inside(found, marks, radius_um / mpp)
    cell_of, _ = pairs.matched()
    marked = np.flatnonzero(cell_of >= 0)
    target[cell_of[marked]] = said[marked]
    mark_of = np.full(len(found), -1)
    mark_of[cell_of[marked]] = marked
    row, other = pairs.row, mark_of[pairs.column]  # two marks on one cell, if they are near each other
    close = np.hypot(*(marks.xy[row] - marks.xy[other]).T) <= radius_um / mpp / 2 if len(row) else row > 0
    differ = (other >= 0) & (np.minimum(said[row], said[other]) >= 0) & (said[row] != said[other])
    unlike = np.unique(row[(cell_of[row] < 0) & close & differ])
    if len(unlike):
        x, y = marks.xy[unlike[0]]
        warn(
            f"{counted(len(unlike), 'mark')} on cells that are marked as another class, the first at "
            f"({x:.0f}, {y:.0f}); of two marks on one cell the nearer to its centre counts"
        )
    return target


def _near_or_inside(found: Cells, marks: Cells, radius: float) -> Candidates:
    """Return pairs of marks and found cells; one that lies in the outline of a cell prefers this cell."""
    shape = len(marks), len(found)
    if not all(shape):
        return Candidates.within(marks.xy, found.xy, radius=radius)
    reach = radius
    if found.outline is not None:
        bounds = shapely.bounds(found.outline)
        reach = max(radius, float(np.nanmax(bounds[:, 2:] - bounds[:, :2], initial=0)))
    # Of a million cells few are near a mark, and only these are looked at.
    near = np.flatnonzero(np.isfinite(KDTree(marks.xy).query(found.xy, distance_upper_bound=reach)[0]))
    close = Candidates.within(marks.xy, found.xy[near], radius=radius)
    if found.outline is None:
        return Candidates(close.row, near[close.column], close.cost, shape)
    row, column = shapely.STRtree(found.outline[near]).query(shapely.points(marks.xy), predicate="within")
    is_inside = np.isin(close.row * len(near) + close.column, row * len(near) + column)
    distance = np.hypot(*(marks.xy[row] - found.xy[near][column]).T)
    return Candidates(
        np.concatenate([row, close.row[~is_inside]]),
        near[np.concatenate([column, close.column[~is_inside]])],
        np.concatenate([distance / max(1.0, reach), 10 + close.cost[~is_inside] / radius]),
        shape,
    )


@dataclass(frozen=True, eq=False)
class MarkedCells:
    """What marks say about found cells.

    Attributes:
        kinds: that the marks name.
        target: ``(N,)`` of the found cells, see :func:`learn_kinds`.
        colors: of the kinds, as ``#rrggbb``.
        um: ``(N, 2)`` places of the found cells in µm.
    """

    kinds: tuple[str, ...]
    target: NDArray[np.int64]
    colors: tuple[str, ...]
    um: NDArray[np.float64]

    @classmethod
    def of(cls, found: Cells, marks: Cells) -> Self:
        """Match marks with found cells.

        Raises:
            InputError: the marks name no kind, or no found cell lies near a mark.
        """
        (marks,) = with_one_spelling([marks])
        kinds = named_kinds([marks], leave_out=(REJECTED,))
        if not kinds:
            raise InputError("the marks name no kind of cell; give them classes such as Lymphocyte or Tumour")
        target = kind_targets(found, marks, kinds)
        if not (target > 0).any():
            raise InputError(
                f"none of {counted(len(found), 'cell')} lies near a mark of {', '.join(kinds)}, so there is "
                "nothing to learn kinds from; are the cells and the marks of the same slide?"
            )
        known = dict(zip(marks.classes, marks.colors or (), strict=False))
        colors = (known.get(name, PALETTE[k % len(PALETTE)]) for k, name in enumerate(kinds))
        um = found.xy * (found.mpp or marks.mpp or 1.0)
        return cls(kinds, target, tuple("#" + bytes(color).hex() for color in colors), um)

    def learn(self, features: NDArray[np.floating], *, seed: int = 0) -> KindHead:
        """Learn the kinds from the features ``(N, F)`` of all found cells."""
        head = learn_kinds(features, self.target, self.kinds, um=self.um, seed=seed)
        known = dict(zip(self.kinds, self.colors, strict=True))
        grey = "#" + bytes(GREY).hex()
        return replace(head, colors=tuple(known.get(name, grey) for name in head.names))


def rekind(found: Cells, features: NDArray[np.floating], marks: Cells, *, seed: int = 0) -> Cells:
    """Return found cells with the kinds that marks name; places, outlines and scores stay.

    A second for 100,000 cells: :meth:`MarkedCells.of`, :meth:`MarkedCells.learn`, :meth:`KindHead.assign`.

    Args:
        found: all found cells of a slide, with or without outlines.
        features: ``(N, F)`` of each.
        marks: with class names, in the same pixels.
        seed: of the choice of unmarked cells.

    >>> found = Cells([[0, 0], [50, 0], [90, 0]], mpp=0.5)
    >>> marks = Cells([[1, 0], [51, 0]], classes=("a", "b"), label=[0, 1], mpp=0.5)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     rekind(found, np.array([[3.0], [-3.0], [3.0]]), marks).counts()
    {'Other': 0, 'a': 2, 'b': 1}
    """
    return MarkedCells.of(found, marks).learn(features, seed=seed).assign(found, features)
