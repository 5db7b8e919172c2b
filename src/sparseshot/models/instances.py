"""Instances from a mask: fill holes, split objects at waists.

An object depends on its own neighbourhood only, not on the window. Distances are exact, and pixels are
flooded in an order given by height and place alone; so an object that no window edge cuts is the same in
every window.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.compiled import compiled

_LEVELS_PER_PX = 64


class Instances(NamedTuple):
    """Objects of a window.

    Attributes:
        labels: ``(H, W)`` int32, 0 or 1…N.
        peak: ``(N, 2)`` int64 row and column of the highest pixel of each object.
        reach_px: ``(N,)`` distance from there to the farthest pixel of the object.
        area_px: ``(N,)`` number of pixels.
    """

    labels: NDArray[np.int32]
    peak: NDArray[np.int64]
    reach_px: NDArray[np.float64]
    area_px: NDArray[np.int64]

    def chosen(self, which: NDArray[np.bool_]) -> "Instances":
        """Return some of them, renumbered."""
        number = np.concatenate([[0], np.where(which, np.cumsum(which), 0)]).astype(np.int32)
        return Instances(number[self.labels], self.peak[which], self.reach_px[which], self.area_px[which])

    def tallies(
        self, values: NDArray[np.int16], kinds: NDArray[np.uint8], *, count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each object's sum of ``values`` and its number of pixels of each of ``count`` kinds."""
        sums: tuple[NDArray[np.int64], NDArray[np.int64]] = _tallies(
            self.labels, values, kinds, len(self.peak), count
        )
        return sums


def split(mask: NDArray[np.bool_], *, waist_px: float, hole_px: int, cap_px: int) -> Instances:
    """Split a mask into edge-connected objects.

    Height is the distance to the background, slightly smoothed. From the highest pixel down, a pixel without
    a higher neighbour begins an object; any other joins the object of its highest neighbour. Where two
    objects meet, the lower one becomes part of the higher one, unless it rises at least ``waist_px`` above
    the place where they meet.

    Args:
        mask: ``(H, W)``.
        waist_px: how much narrower, in radius, a waist must be to separate two objects.
        hole_px: holes of fewer pixels are filled first.
        cap_px: distances beyond this count as this.

    >>> mask = np.zeros((7, 13), dtype=bool)
    >>> mask[1:6, 1:6] = mask[1:6, 7:12] = mask[3, 6] = True
    >>> [int(split(mask, waist_px=waist, hole_px=0, cap_px=9).labels.max()) for waist in (0.4, 2.0)]
    [2, 1]
    """
    mask = _without_holes(mask, hole_px) if hole_px > 1 else mask
    # Large arrays are made by NumPy, which asks for huge pages; compiled code does not.
    height = np.zeros((mask.shape[0] + 2, mask.shape[1] + 2), np.uint16)
    _measure_heights(mask, cap_px, height)
    labels = np.zeros(height.shape, np.int32)
    peak = _flood(_highest_first(height), height, round(waist_px * _LEVELS_PER_PX), labels)
    labels, peak = labels[1:-1, 1:-1].copy(), np.column_stack(np.divmod(peak, height.shape[1])) - 1
    reach, area = _extent(labels, peak)
    return Instances(labels, peak, np.sqrt(reach), area)


@compiled
def _without_holes(mask: NDArray[np.bool_], hole_px: int) -> NDArray[np.bool_]:
    """Fill background pieces of fewer than ``hole_px`` pixels that do not touch the border of the array.

    A piece is walked until it is known to be too large. The next pixel then usually has a neighbour for
    which that is known already.
    """
    rows, columns = mask.shape
    filled = mask.copy()
    open_ground = np.zeros((rows, columns), np.bool_)
    piece = np.empty((hole_px + 4, 2), np.int32)
    for row in range(rows):
        for column in range(columns):
            if filled[row, column] or open_ground[row, column]:
                continue
            if (row and open_ground[row - 1, column]) or (column and open_ground[row, column - 1]):
                open_ground[row, column] = True
                continue
            piece[0, 0], piece[0, 1] = row, column
            filled[row, column] = True
            walked, size, large = 0, 1, False
            while walked < size and not large:
                y, x = piece[walked]
                walked += 1
                large = y in (0, rows - 1) or x in (0, columns - 1)
                for turn in range(4):
                    r, c = y + (turn == 3) - (turn == 0), x + (turn == 2) - (turn == 1)
                    if not large and not filled[r, c]:
                        if open_ground[r, c] or size >= hole_px - 1:
                            large = True
                        else:
                            piece[size, 0], piece[size, 1] = r, c
                            filled[r, c] = True
                            size += 1
            if large:
                for place in piece[:size]:
                    filled[place[0], place[1]] = False
                    open_ground[place[0], place[1]] = True
    return filled


@compiled
def _measure_heights(mask: NDArray[np.bool_], cap: int, height: NDArray[np.uint16]) -> None:
    """Write the distance of each pixel to the nearest background, in levels, into an array with a border.

    The distance is exact and at most ``cap``: first along each row, then up and down as far as a nearer one
    is possible anywhere in the row. Outside the array is background. It is smoothed by weights 1 2 1 in x
    and y. Loops run over whole rows, which the compiler vectorises.
    """
    rows, columns = mask.shape
    along = np.zeros((rows + 2 * cap, columns), np.int16)
    for row in range(rows):
        here, run = along[row + cap], 0
        for column in range(columns):
            run = min(run + 1, cap) if mask[row, column] else 0
            here[column] = run
        run = 0
        for column in range(columns - 1, -1, -1):
            run = min(run + 1, cap) if mask[row, column] else 0
            here[column] = min(here[column], run)
    level = np.zeros((3, columns + 2), np.int32)  # of this row and the two above
    squared, sums = np.empty(columns, np.int32), np.empty(columns + 2, np.int32)
    for row in range(rows + 1):
        below = level[row % 3]
        below[:] = 0
        if row < rows:
            _squared_distances(along, row + cap, squared)
            for column in range(columns):
                below[column + 1] = int(np.sqrt(squared[column]) * _LEVELS_PER_PX)
        if row:
            above, middle = level[(row - 2) % 3], level[(row - 1) % 3]
            for column in range(columns + 2):
                sums[column] = above[column] + 2 * middle[column] + below[column]
            for column in range(columns):
                smooth = (sums[column] + 2 * sums[column + 1] + sums[column + 2]) // 16
                height[row, column + 1] = min(smooth, 65535) if middle[column + 1] else 0


@compiled
def _squared_distances(along: NDArray[np.int16], row: int, squared: NDArray[np.int32]) -> None:
    """Compute the squared distances of one row from the distances along it and the rows around it."""
    here, largest = along[row], np.int32(0)
    for column in range(len(squared)):
        squared[column] = np.int32(here[column]) * np.int32(here[column])
        largest = max(largest, squared[column])
    step = 1
    while step * step < largest:
        above, below, down = along[row - step], along[row + step], np.int32(step * step)
        largest = np.int32(0)
        for column in range(len(squared)):
            nearer = np.int32(min(above[column], below[column]))
            squared[column] = min(squared[column], nearer * nearer + down)
            largest = max(largest, squared[column])
        step += 1


@compiled
def _highest_first(height: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the flat index of every pixel above 0, from the highest down within each connected piece.

    Of equal heights the first in reading order goes first. Pieces do not meet, so they may be flooded one by
    one, which takes a third of the time: their pixels are near each other in memory.
    """
    level = height.ravel()
    around = (-height.shape[1], -1, 1, height.shape[1])
    seen = np.zeros(len(level), np.bool_)
    order = np.empty(np.count_nonzero(level), np.int64)
    end = 0
    for first in range(len(level)):
        if level[first] == 0 or seen[first]:
            continue
        begin, walked = end, end
        order[end], seen[first] = first, True
        end += 1
        while walked < end:
            place = order[walked]
            walked += 1
            for step in around:
                if level[place + step] and not seen[place + step]:
                    order[end], seen[place + step] = place + step, True
                    end += 1
        piece = order[begin:end]
        for k in range(len(piece)):
            piece[k] += (65535 - np.int64(level[piece[k]])) << 40
        piece.sort()
        for k in range(len(piece)):
            piece[k] &= (1 << 40) - 1
    return order


@compiled
def _root(parent: NDArray[np.int32], label: int) -> int:
    while parent[label] != label:
        parent[label] = parent[parent[label]]
        label = parent[label]
    return label


@compiled
def _flood(
    order: NDArray[np.int64], height: NDArray[np.uint16], waist: int, labels: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Write the labels into an array of 0, and return the flat index of the peak of each.

    ``order`` is that of :func:`_highest_first`. The border of ``height`` is background, so every pixel in the
    order has four neighbours.
    """
    flat, level = labels.ravel(), height.ravel()
    peak, parent = np.empty(len(order) + 1, np.int64), np.empty(len(order) + 1, np.int32)
    # Above, left, right, below: reading order, so that ties go the same way in every window.
    around = (-height.shape[1], -1, 1, height.shape[1])
    near = np.empty(4, np.int32)
    count = 0
    for place in order:
        found, highest, home = 0, -1, 0
        for step in around:
            if flat[place + step]:
                near[found] = _root(parent, flat[place + step])
                if level[place + step] > highest:
                    highest, home = level[place + step], near[found]
                found += 1
        if not found:
            count += 1
            flat[place], peak[count], parent[count] = count, place, count
            continue
        flat[place] = home
        for other in range(found if found > 1 else 0):
            # The object that began earlier is the higher one.
            a, b = _root(parent, home), _root(parent, near[other])
            low, high = max(a, b), min(a, b)
            if low != high and level[peak[low]] - level[place] < waist:
                parent[low] = high
    number = np.zeros(count + 1, np.int32)
    kept = 0
    for label in range(1, count + 1):
        if parent[label] == label:
            kept += 1
            number[label], peak[kept] = kept, peak[label]
    for place in order:
        flat[place] = number[_root(parent, flat[place])]
    return peak[1 : kept + 1].copy()


@compiled
def _extent(
    labels: NDArray[np.int32], peak: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the squared distance from its peak to the farthest pixel, and the area, of each object."""
    rows, columns = labels.shape
    reach, area = np.zeros(len(peak), np.int64), np.zeros(len(peak), np.int64)
    for row in range(rows):
        for column in range(columns):
            label = labels[row, column] - 1
            if label >= 0:
                dy, dx = row - peak[label, 0], column - peak[label, 1]
                reach[label] = max(reach[label], dx * dx + dy * dy)
                area[label] += 1
    return reach, area


@compiled
def _tallies(
    labels: NDArray[np.int32], values: NDArray[np.int16], kinds: NDArray[np.uint8], objects: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sums, votes = np.zeros(objects, np.int64), np.zeros((objects, count), np.int64)
    for row in range(labels.shape[0]):
        for column in range(labels.shape[1]):
            label = labels[row, column] - 1
            if label >= 0:
                sums[label] += values[row, column]
                votes[label, kinds[row, column]] += 1
    return sums, votes
