"""One-to-one matching of true and found cells within a radius."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import (
    connected_components,
    maximum_bipartite_matching,
    min_weight_full_bipartite_matching,
)
from scipy.spatial import KDTree

from sparseshot.cells import Cells
from sparseshot.cells.buckets import checked_points, checked_radius
from sparseshot.cells.rings import offsets
from sparseshot.compiled import compiled
from sparseshot.errors import InputError, unknown_name
from sparseshot.metrics.counts import Counts

MOST_CANDIDATES = 2**28
"""More pairs than this, several GB, mean a radius in the wrong unit."""
_AT_ONCE, _MOST_AT_ONCE = 2000, 100_000
"""Pairs matched at a time, since time grows with the square of their number.

A connected group is not divided. In one of more pairs than the latter, in tissue so crowded that the radius
reaches from cell to cell, near pairs are preferred, but the sum of distances need not be the least.
"""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The pairs that may be matched.

    Attributes:
        row: ``(P,)`` first of each pair.
        column: ``(P,)`` second of each pair.
        cost: ``(P,)`` of each pair, not negative.
        shape: number of rows and of columns.
    """

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    cost: NDArray[np.float64]
    shape: tuple[int, int]

    @classmethod
    def within(cls, rows_xy: NDArray[np.float64], columns_xy: NDArray[np.float64], *, radius: float) -> Self:
        """Return pairs of points at a distance of ``radius`` or less, which is their cost."""
        shape = len(rows_xy), len(columns_xy)
        if not all(shape):
            return cls(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), shape)
        trees, wider = (KDTree(rows_xy), KDTree(columns_xy)), radius * (1 + 1e-9)  # whatever it rounds
        if trees[0].count_neighbors(trees[1], wider) > MOST_CANDIDATES:
            raise InputError(
                f"a radius of {radius:g} gives more than {MOST_CANDIDATES:,} pairs for {shape[0]:,} and "
                f"{shape[1]:,} points; check that the radius is in the unit of the points"
            )
        found = trees[0].sparse_distance_matrix(trees[1], wider, output_type="ndarray")
        squared = ((rows_xy[found["i"]] - columns_xy[found["j"]]) ** 2).sum(axis=1)
        near = squared <= radius * radius
        return cls(found["i"][near], found["j"][near], np.sqrt(squared[near]), shape)

    def matched(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Match as many rows as possible at the least sum of costs; return columns, or -1, and costs."""
        scale = self.cost.max(initial=0) or 1.0
        pairs = self._best(self.cost / scale, unpaired=self.shape[0] + 1.0)
        partner, cost = np.full(self.shape[0], -1, np.int32), np.full(self.shape[0], np.nan)
        partner[self.row[pairs]], cost[self.row[pairs]] = self.column[pairs], self.cost[pairs]
        return partner, cost

    def gains(self, order: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return for each row, in an order of all rows, whether it makes the largest matching larger.

        So the number of gains among the first rows is the size of the largest matching of these rows, for
        every number of first rows at once: sets of rows that can be matched are those of a matroid.
        """
        by_row = np.lexsort((self.cost, self.row))  # the nearest column first
        begins = offsets(np.bincount(self.row, minlength=self.shape[0]))
        gained: NDArray[np.bool_] = _gains(begins, self.column[by_row], np.asarray(order), self.shape[1])
        return gained

    def _best(self, cost: NDArray[np.float64], *, unpaired: float) -> NDArray[np.intp]:
        """Return the pairs of the least sum of their costs and of ``unpaired`` for each row in no pair."""
        best = [np.empty(0, np.intp)]
        for part in self._groups():
            rows, i = np.unique(self.row[part], return_inverse=True)
            columns, j = np.unique(self.column[part], return_inverse=True)
            if len(part) > _MOST_AT_ONCE:
                nearest = np.lexsort((cost[part], i))  # in this order columns are tried
                table = csr_array((np.ones(len(part)), j[nearest], offsets(np.bincount(i))))
                best.append(part[maximum_bipartite_matching(table, "column")[i] == j])
                continue
            every = np.arange(len(rows))  # each row has a column of its own, which stands for no pair
            ends = np.concatenate([i, every]), np.concatenate([j, len(columns) + every])
            weights = 1 + np.concatenate([cost[part], np.full(len(rows), unpaired)])  # 0 would be no edge
            table = csr_array((weights, ends), shape=(len(rows), len(columns) + len(rows)))
            chosen = min_weight_full_bipartite_matching(table)[1]
            best.append(part[chosen[i] == j])
        return np.concatenate(best)

    def _groups(self) -> Iterator[NDArray[np.intp]]:
        """Yield the pairs in groups that have no row or column in common."""
        ends = self.row, self.shape[0] + self.column
        graph = csr_array((np.ones(len(self.row), np.int8), ends), shape=(sum(self.shape),) * 2)
        group = connected_components(graph, directed=False)[1][self.row]
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        starts = begins[np.flatnonzero(np.diff(begins // _AT_ONCE, prepend=-1))]
        yield from filter(len, np.split(order, starts[1:]))


@compiled
def _gains(begins: Any, columns: Any, order: Any, count: int) -> Any:
    """Search for an augmenting path from each row in turn, and return which rows have one.

    Columns that a search without success has seen are never part of a later path, so they are seen once.
    """
    partner, pair = np.full(count, -1), np.full(len(begins) - 1, -1)
    came, seen = np.empty(count, np.int64), np.full(count, -1)
    queue = np.empty(len(begins), np.int64)
    gained = np.zeros(len(order), np.bool_)
    for turn in range(len(order)):
        queue[0], head, tail, free = order[turn], 0, 1, -1
        while head < tail and free < 0:
            row = queue[head]
            head += 1
            for k in range(begins[row], begins[row + 1]):
                column = columns[k]
                if seen[column] == turn or seen[column] == len(order):
                    continue
                seen[column], came[column] = turn, row
                if partner[column] < 0:
                    free = column
                    break
                queue[tail] = partner[column]
                tail += 1
        if free < 0:  # what was seen stays seen
            for row in queue[:tail]:
                for k in range(begins[row], begins[row + 1]):
                    seen[columns[k]] = len(order)
            continue
        gained[turn] = True
        while free >= 0:
            row = came[free]
            partner[free], pair[row], free = row, free, pair[row]
    return gained


@dataclass(frozen=True, eq=False)
class Matching:
    """Pairs of true and found cells; each cell is in at most one.

    Attributes:
        truth: ``(P,)`` index of the true cell of each pair, ascending.
        found: ``(P,)`` index of the found cell of each pair.
        distance: ``(P,)`` between the two: in the unit of the points, or 1 − IoU.
        truth_total: number of true cells.
        found_total: number of found cells.
    """

    truth: NDArray[np.int32]
    found: NDArray[np.int32]
    distance: NDArray[np.float64]
    truth_total: int
    found_total: int

    @classmethod
    def of_partners(
        cls, partner: NDArray[np.int32], distance: NDArray[np.float64], *, found_total: int
    ) -> Self:
        """Return the matching of true cell i with found cell ``partner[i]``, or none where that is -1."""
        paired = np.flatnonzero(partner >= 0).astype(np.int32)
        return cls(paired, partner[paired], distance[paired], len(partner), found_total)

    @property
    def counts(self) -> Counts:
        """Pairs as true positives, single found cells as false positives, single true cells as misses."""
        pairs = len(self.truth)
        return Counts(tp=pairs, fp=self.found_total - pairs, fn=self.truth_total - pairs)


def match_points(truth_xy: NDArray[np.float64], found_xy: NDArray[np.float64], *, radius: float) -> Matching:
    """Match as many points as possible, one to one, each pair at a distance of ``radius`` or less.

    Of all such matchings it is one with the least sum of distances. Memory grows with the pairs within the
    radius, not with the product of the numbers of points.

    >>> truth, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[3.0, 0.0], [6.0, 0.0]])
    >>> matching = match_points(truth, found, radius=3)  # pairing the nearest first would lose a pair
    >>> matching.truth, matching.found, matching.counts
    (array([0, 1], dtype=int32), array([0, 1], dtype=int32), Counts(tp=2, fp=0, fn=0))
    """
    truth_xy, found_xy = checked_points(truth_xy, "truth_xy"), checked_points(found_xy, "found_xy")
    matched = Candidates.within(truth_xy, found_xy, radius=checked_radius(radius)).matched()
    return Matching.of_partners(*matched, found_total=len(found_xy))


def match_cells(truth: Cells, found: Cells, *, radius_um: float = 3.0, by_class: bool = False) -> Matching:
    """Match true and found cells of one slide within a radius in µm; ``distance`` is in µm too.

    Args:
        truth: the true cells.
        found: the found cells, in the same level-0 pixels.
        radius_um: 3 µm is about the radius of a lymphocyte's nucleus.
        by_class: whether only cells whose classes have the same name may be matched. Cells without a class
            then match only one another.

    >>> truth = Cells(np.array([[0.0, 0.0], [40.0, 0.0]]), mpp=0.25)
    >>> match_cells(truth, Cells(np.array([[8.0, 0.0]]), mpp=0.25)).counts
    Counts(tp=1, fp=0, fn=1)
    """
    mpp = shared_mpp(truth, found)
    if not by_class:
        matching = match_points(truth.xy, found.xy, radius=radius_um / mpp)
        return replace(matching, distance=matching.distance * mpp)
    partner, distance = np.full(len(truth), -1, np.int32), np.full(len(truth), np.nan)
    for name in [*dict.fromkeys(truth.classes + found.classes), None]:
        rows, columns = _of_class(truth, name), _of_class(found, name)
        part = match_points(truth.xy[rows], found.xy[columns], radius=radius_um / mpp)
        partner[rows[part.truth]] = columns[part.found]
        distance[rows[part.truth]] = part.distance * mpp
    return Matching.of_partners(partner, distance, found_total=len(found))


def counts_by_class(matching: Matching, truth: Cells, found: Cells) -> dict[str, Counts]:
    """Count for each class the pairs that agree on it, and its true and found cells in no such pair.

    After a matching across classes, a cell found in the right place with the wrong class is a false positive
    of one class and a miss of the other.
    """
    counts = {}
    for name in dict.fromkeys(truth.classes + found.classes):
        rows, columns = _of_class(truth, name), _of_class(found, name)
        agree = np.isin(matching.truth, rows) & np.isin(matching.found, columns)
        tp = int(np.count_nonzero(agree))
        counts[name] = Counts(tp=tp, fp=len(columns) - tp, fn=len(rows) - tp)
    return counts


def exclusive_counts(
    truth: Cells, found: Cells, *, of_class: str, radius_um: float = 3.0
) -> tuple[Counts, Counts]:
    """Count the marks of one class, and those of all others, that were found as that class.

    ``found`` are the cells found as the class. They are matched with the marks of all classes at once, so
    that each counts for one mark: a lymphocyte found beside a tumour cell is not counted twice. Found cells
    without a mark near them do not count, since with sparse marks they may be right or wrong. For
    :func:`~sparseshot.metrics.counts.exclusive_recall`.

    >>> truth = Cells(np.array([[0.0, 0.0], [40.0, 0.0], [80.0, 0.0]]), classes=("lymphocyte", "tumour"),
    ...               label=np.array([0, 0, 1]), mpp=0.25)
    >>> exclusive_counts(truth, Cells(np.array([[1.0, 0.0], [79.0, 0.0]]), mpp=0.25), of_class="lymphocyte")
    (Counts(tp=1, fp=0, fn=1), Counts(tp=1, fp=0, fn=0))
    """
    if of_class not in truth.classes:
        raise InputError(unknown_name("class", of_class, truth.classes))
    matching = match_cells(truth, found, radius_um=radius_um)
    wanted = truth.label == truth.classes.index(of_class)
    hit = np.zeros(len(truth), np.bool_)
    hit[matching.truth] = True
    own, other = ((int((hit & kind).sum()), int((~hit & kind).sum())) for kind in (wanted, ~wanted))
    return Counts(tp=own[0], fn=own[1]), Counts(tp=other[0], fn=other[1])


def shared_mpp(truth: Cells, found: Cells) -> float:
    """Return the µm per pixel of two tables of one slide, of which at least one has it."""
    known = [cells.mpp for cells in (truth, found) if cells.mpp is not None]
    if not known:
        raise InputError("neither true nor found cells carry an mpp; set it with replace(cells, mpp=0.25)")
    if not math.isclose(known[0], known[-1], rel_tol=1e-3):
        raise InputError(
            f"true cells have {known[0]:g} µm/px, found ones {known[-1]:g}; bring both to one by rescaled()"
        )
    return known[0]


def _of_class(cells: Cells, name: str | None) -> NDArray[np.int32]:
    """Return the indices of the cells of a class; of those without a class for None."""
    if name is not None and name not in cells.classes:
        return np.empty(0, np.int32)
    label = -1 if name is None else cells.classes.index(name)
    return np.flatnonzero(cells.label == label).astype(np.int32)
