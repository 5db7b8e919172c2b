"""Points sorted into square buckets, so that the neighbours of a point are near in memory."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        low = np.min([xy.min(axis=0) for xy in filled], axis=0)
        high = np.max([xy.max(axis=0) for xy in filled], axis=0)
        spans = (high - low) / side
        if not (spans < 2**30).all():
            raise InputError(
                f"a distance of {side:.3g} is too small beside an extent of {(high - low).max():.3g}; "
                f"give both in the same unit"
            )
        stride, rows = (int(span) + 1 + 2 * MARGIN for span in spans)
        return cls(float(low[0]), float(low[1]), side, stride, rows)

    def sort(self, xy: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the stable order of points by their buckets, and their buckets in that order."""
        keys = self.keys(xy)
        order = np.argsort(keys, kind="stable").astype(np.int32)
        return order, keys[order]

    def keys(self, xy: NDArray[np.float64]) -> NDArray[np.int64]:
        """Number the bucket of each point; a step of one row is a step of ``stride``.

        >>> grid = Buckets.over(np.array([[0.0, 0.0], [30.0, 10.0]]), side=10.0)
        >>> grid.stride, grid.keys(np.array([[0.0, 0.0], [9.0, 1.0], [10.0, 0.0], [0.0, 10.0]]))
        (8, array([18, 18, 19, 26]))
        """
        column, row = ((xy - (self.x0, self.y0)) / self.side).astype(np.int64).T + MARGIN
        keys: NDArray[np.int64] = row * self.stride + column
        return keys


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
