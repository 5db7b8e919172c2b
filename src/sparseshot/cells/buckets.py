"""Points sorted into square buckets, so that the neighbours of a point are near in memory.

Large arrays that compiled code fills out of order are allocated by NumPy, which uses huge pages. Without
these, ten million random accesses take twice the time.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseshot.compiled import compiled
from sparseshot.errors import InputError

MARGIN = 2
"""Empty buckets around the grid, so that a step of two over its edge never lands in another row."""


@dataclass(frozen=True)
class Buckets:
    """Square buckets over the bounding box of some points, numbered row by row.

    Only buckets that contain points take memory.
    """

    x0: float
    y0: float
    side: float
    stride: int
    rows: int

    @classmethod
    def over(cls, *points: NDArray[np.float64], side: float) -> Self:
        """Return a grid of buckets of one side over all ``(N, 2)`` arrays of points."""
        filled = [xy for xy in points if len(xy)]
        if not filled:
            return cls(0.0, 0.0, side, stride=2 * MARGIN, rows=2 * MARGIN)
        low = np.min([[column.min() for column in xy.T] for xy in filled], axis=0)
        high = np.max([[column.max() for column in xy.T] for xy in filled], axis=0)
        spans = (high - low) / side
        if not (spans < 2**30).all():
            raise InputError(
                f"a distance of {side:.3g} is too small beside an extent of {(high - low).max():.3g}; "
                f"give both in the same unit"
            )
        stride, rows = (int(span) + 1 + 2 * MARGIN for span in spans)
        return cls(float(low[0]), float(low[1]), side, stride, rows)

    def keys(self, xy: NDArray[np.float64]) -> NDArray[np.signedinteger]:
        """Number the bucket of each point; a step of one row is a step of ``stride``.

        The numbers are int32 where these suffice, for speed, and int64 elsewhere.

        >>> grid = Buckets.over(np.array([[0.0, 0.0], [30.0, 10.0]]), side=10.0)
        >>> grid.stride, grid.keys(np.array([[0.0, 0.0], [9.0, 1.0], [10.0, 0.0], [0.0, 10.0]]))
        (8, array([18, 18, 19, 26], dtype=int32))
        """
        reaches = self.rows * self.stride < 2**31
        keys: NDArray[np.signedinteger] = np.empty(len(xy), np.dtype(np.int32 if reaches else np.int64))
        _fill_keys(keys, xy, self.x0, self.y0, self.side, self.stride)
        return keys


@compiled
def _fill_keys(  # noqa: PLR0917  compiled code takes arrays one by one
    keys: NDArray[np.signedinteger], xy: NDArray[np.float64], x0: float, y0: float, side: float, stride: int
) -> None:
    for i in range(len(xy)):
        row = np.int64((xy[i, 1] - y0) / side)
        column = np.int64((xy[i, 0] - x0) / side)
        keys[i] = (row + MARGIN) * stride + column + MARGIN


def sorted_keys(keys: NDArray[np.signedinteger]) -> tuple[NDArray[np.int32], NDArray[np.signedinteger]]:
    """Return the stable order of keys at or above 0, and the keys in that order; the argument is overwritten.

    A radix sort of eight bits at a time: unlike that of ``np.argsort``, its time per key hardly grows.
    """
    order, spare = np.arange(len(keys), dtype=np.int32), np.empty(len(keys), np.int32)
    other = np.empty_like(keys)
    for shift in range(0, int(keys.max(initial=0)).bit_length(), 8):
        _sort_by_digit(keys, order, other, spare, shift)
        keys, order, other, spare = other, spare, keys, order
    return order, keys


@compiled
def _sort_by_digit(
    keys: NDArray[np.signedinteger],
    order: NDArray[np.int32],
    sorted_keys: NDArray[np.signedinteger],
    sorted_order: NDArray[np.int32],
    shift: int,
) -> None:
    place = np.zeros(257, np.int64)
    for key in keys:
        place[((key >> shift) & 255) + 1] += 1
    place = np.cumsum(place)
    for i in range(len(keys)):
        digit = (keys[i] >> shift) & 255
        sorted_keys[place[digit]], sorted_order[place[digit]] = keys[i], order[i]
        place[digit] += 1


def checked_points(xy: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return points as ``(N, 2)`` float64, or raise an error that says what is wrong."""
    xy = np.asarray(xy, dtype=np.float64)
    if xy.size == 0:
        return xy.reshape(0, 2)
    if xy.ndim != 2 or xy.shape[1] != 2:
        raise InputError(f"{name} has shape {xy.shape}; give (N, 2): x and y of each point")
    if not np.isfinite(xy).all():
        bad = int(np.flatnonzero(~np.isfinite(xy).all(axis=1))[0])
        raise InputError(f"{name}[{bad}] is {xy[bad].tolist()}; leave out points without finite coordinates")
    return np.ascontiguousarray(xy)


def checked_scores(score: NDArray[np.floating], *, points: int) -> NDArray[np.float64]:
    """Return one float64 score for each point, or raise an error that says what is wrong."""
    score = np.asarray(score)
    if score.shape != (points,):
        raise InputError(f"score has shape {score.shape} for {points} points; give one score a point")
    if np.isnan(score).any():
        raise InputError(f"score[{int(np.argmax(np.isnan(score)))}] is nan; leave out points without a score")
    return score.astype(np.float64, copy=False)


def checked_radius(radius: float) -> float:
    """Return a radius that is positive and finite, or raise an error."""
    if not (np.isfinite(radius) and radius > 0):
        raise InputError(f"radius is {radius}; give a finite distance above 0")
    return float(radius)
