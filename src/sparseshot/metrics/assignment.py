"""One-to-one matching over sparse candidates: as many pairs as possible, near ones first."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.buckets import Buckets, sorted_keys
from sparseshot.compiled import compiled
from sparseshot.errors import InputError

MOST_CANDIDATES = 2**28
"""More pairs than this, over 3 GB, mean a radius in the wrong unit."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The pairs that may be matched, by row: row i may take ``column[start[i]:start[i + 1]]``, best first.

    Rows and columns may be sorted so that neighbours in space are neighbours in memory; ``row_id`` and
    ``column_id`` are their original indices.
    """

    start: NDArray[np.int32]
    column: NDArray[np.int32]
    cost: NDArray[np.float64]
    row_id: NDArray[np.int32]
    column_id: NDArray[np.int32]

    @classmethod
    def within(cls, rows_xy: NDArray[np.float64], columns_xy: NDArray[np.float64], *, radius: float) -> Self:
        """Return pairs of points at a distance of ``radius`` or less; the cost is the distance squared."""
        # A little wider than the radius, so that no rounding puts a neighbour two buckets away.
        grid = Buckets.over(rows_xy, columns_xy, side=1.001 * radius)
        row_id, row_keys = sorted_keys(grid.keys(rows_xy))
        column_id, column_keys = sorted_keys(grid.keys(columns_xy))
        start, column, cost = _pairs_within(
            rows_xy.take(row_id, axis=0),
            row_keys,
            columns_xy.take(column_id, axis=0),
            column_keys,
            grid.stride,
            radius * radius,
        )
        if start[-1] > MOST_CANDIDATES:
            raise InputError(
                f"a radius of {radius:g} gives more than {MOST_CANDIDATES:,} pairs for {len(rows_xy):,} and "
                f"{len(columns_xy):,} points; check that the radius is in the unit of the points"
            )
        return cls(start, column, cost, row_id, column_id)

    @classmethod
    def from_pairs(
        cls,
        row: NDArray[np.integer],
        column: NDArray[np.integer],
        *,
        cost: NDArray[np.float64],
        shape: tuple[int, int],
    ) -> Self:
        """Return the listed pairs, of a number of rows and columns."""
        order = np.lexsort((cost, row))
        start = np.zeros(shape[0] + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=shape[0]), out=start[1:])
        names = (np.arange(size, dtype=np.int32) for size in shape)
        return cls(start, column[order].astype(np.int32), cost[order], *names)

    def matched(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Match as many rows as possible; return the column of each original row, or -1, and the cost.

        It starts with nearest-first matching, then re-pairs along shortest augmenting paths where that gains
        a pair. So the number of pairs is the largest possible, and pairs are near; the sum of the costs is
        not always the smallest possible.
        """
        pick = _nearest_first(self.start, self.column, self.cost, len(self.column_id))
        single = np.flatnonzero((pick < 0) & (self.start[1:] > self.start[:-1])).astype(np.int32)
        _grow(self.start, self.column, pick, single, len(self.column_id))
        partner, cost = np.full(len(pick), -1, np.int32), np.full(len(pick), np.nan)
        pairs = pick[pick >= 0]
        rows = self.row_id[pick >= 0]
        partner[rows], cost[rows] = self.column_id[self.column[pairs]], self.cost[pairs]
        return partner, cost

    def gains(self, order: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return for each row, in an order of original rows, whether it makes the largest matching larger.

        So the number of gains among the first rows is the size of the largest matching of these rows, for
        every number of first rows at once.
        """
        place = np.empty(len(self.row_id), np.int32)
        place[self.row_id] = np.arange(len(place), dtype=np.int32)
        pick = np.full(len(place), -1, np.int32)
        gained: NDArray[np.bool_] = _grow(self.start, self.column, pick, place[order], len(self.column_id))
        return gained


@compiled
def _pairs_within(  # noqa: PLR0917  compiled code takes arrays one by one
    a: NDArray[np.float64],
    a_keys: NDArray[np.signedinteger],
    b: NDArray[np.float64],
    b_keys: NDArray[np.signedinteger],
    stride: int,
    radius_squared: float,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Count the pairs of each point of ``a``, then fill them in, both sorted by bucket."""
    start = np.zeros(len(a) + 1, np.int32)
    column = np.empty(0, np.int32)
    cost = np.empty(0, np.float64)
    for filling in (False, True):
        if filling:
            column = np.empty(start[-1], np.int32)
            cost = np.empty(start[-1], np.float64)
        first = np.zeros(3, np.int64)  # in each of three rows of buckets, where the neighbours begin
        found = 0
        for i in range(len(a)):
            for row in range(3):
                key = a_keys[i] + (row - 1) * stride
                while first[row] < len(b) and b_keys[first[row]] < key - 1:
                    first[row] += 1
                j = first[row]
                while j < len(b) and b_keys[j] <= key + 1:
                    dx, dy = a[i, 0] - b[j, 0], a[i, 1] - b[j, 1]
                    squared = dx * dx + dy * dy
                    if squared <= radius_squared:
                        if filling:
                            column[found], cost[found] = j, squared
                        found += 1
                    j += 1
            if filling:
                _sort_row(column[start[i] : found], cost[start[i] : found])
            start[i + 1] = found
            if found > MOST_CANDIDATES:
                start[-1] = found
                return start, column, cost
    return start, column, cost


@compiled
def _sort_row(column: NDArray[np.int32], cost: NDArray[np.float64]) -> None:
    """Sort the pairs of one row by cost, in place."""
    if len(cost) > 32:
        order = np.argsort(cost)
        column[:], cost[:] = column[order], cost[order]
        return
    for i in range(1, len(cost)):
        this_column, this_cost = column[i], cost[i]
        j = i
        while j > 0 and cost[j - 1] > this_cost:
            column[j], cost[j] = column[j - 1], cost[j - 1]
            j -= 1
        column[j], cost[j] = this_column, this_cost


@compiled
def _nearest_first(
    start: NDArray[np.int32], column: NDArray[np.int32], cost: NDArray[np.float64], columns: int
) -> NDArray[np.int32]:
    """Match the nearest pair, then the nearest of the rest, …; return the pair of each row, or -1.

    Each row proposes to its columns, nearest first; a column keeps the nearest that proposed. Distances are
    symmetric, so this stable matching is the nearest-first one, without sorting all pairs.
    """
    pick = np.full(len(start) - 1, -1, np.int32)
    next_pair = start[:-1].copy()
    held_by = np.full(columns, -1, np.int32)
    for row in range(len(pick)):
        asking = row
        while asking >= 0 and next_pair[asking] < start[asking + 1]:
            pair = next_pair[asking]
            next_pair[asking] += 1
            holder = held_by[column[pair]]
            if holder < 0 or cost[pair] < cost[pick[holder]]:
                held_by[column[pair]], pick[asking] = asking, pair
                if holder >= 0:
                    pick[holder] = -1
                asking = holder
    return pick


@compiled
def _grow(
    start: NDArray[np.int32],
    column: NDArray[np.int32],
    pick: NDArray[np.int32],
    order: NDArray[np.int32],
    columns: int,
) -> NDArray[np.bool_]:
    """Add rows to a matching, in place, each by its shortest augmenting path; return which rows had one.

    The columns seen by a failed search lead nowhere, also later, so they are closed: all failed searches
    together look at each pair once. Successful ones stay near their source while the radius is not much
    larger than the distance between neighbours.
    """
    taken_by = np.full(columns, -1, np.int32)
    for row in range(len(pick)):
        if pick[row] >= 0:
            taken_by[column[pick[row]]] = row
    closed = np.zeros(columns, np.bool_)
    seen_by = np.full(columns, -1, np.int32)
    asked_by = np.empty(columns, np.int32)
    asked_as = np.empty(columns, np.int32)
    queue = np.empty(columns + 1, np.int32)
    gained = np.zeros(len(order), np.bool_)
    for turn in range(len(order)):
        queue[0], head, tail, free = order[turn], 0, 1, -1
        while head < tail and free < 0:
            row = queue[head]
            head += 1
            for pair in range(start[row], start[row + 1]):
                this = column[pair]
                if closed[this] or seen_by[this] == turn:
                    continue
                seen_by[this], asked_by[this], asked_as[this] = turn, row, pair
                if taken_by[this] < 0:
                    free = this
                    break
                queue[tail] = taken_by[this]
                tail += 1
        if free < 0:
            for row in queue[1:tail]:
                closed[column[pick[row]]] = True
            continue
        gained[turn] = True
        while free >= 0:
            row = asked_by[free]
            left = column[pick[row]] if pick[row] >= 0 else -1
            pick[row], taken_by[free] = asked_as[free], row
            free = left
    return gained
