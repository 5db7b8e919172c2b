"""Found cells in memory, indexed by place: the cost of a view depends on what it shows."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.buckets import MARGIN, Buckets

_BUCKET_PX = 256.0
_COLOR = 230, 159, 0

Area = tuple[float, float, float, float]
"""x0, y0, x1, y1 in level-0 pixels."""


@dataclass(frozen=True, eq=False)
class FoundCells:
    """An immutable index of found cells: 22 bytes each.

    Attributes:
        xy: ``(N, 2)`` float32, sorted by buckets.
        label: ``(N,)`` int16, index into ``classes``.
        score: ``(N,)`` float32.
        source: ``(N,)`` int32, row in the table that the index was made of: ``files``, one after the other.
        classes: names of the classes.
        colors: ``(C, 3)`` uint8 red, green and blue.
        mpp: µm per level-0 pixel.
        files: tables with the outlines; empty for derived results.
        features: ``(N, F)`` by which kinds are told apart; None where they were not kept.
    """

    xy: NDArray[np.float32]
    label: NDArray[np.int16]
    score: NDArray[np.float32]
    source: NDArray[np.int32]
    classes: tuple[str, ...]
    colors: NDArray[np.uint8]
    mpp: float
    _grid: Buckets
    _keys: NDArray[np.signedinteger]
    _sorted_scores: tuple[NDArray[np.float32], ...]
    files: tuple[Path, ...] = ()
    features: NDArray[np.float16] | None = None

    @classmethod
    def of(cls, cells: Cells, *, mpp: float) -> "FoundCells":
        """Sort a table of cells.

        >>> FoundCells.of(Cells([[5, 5], [900, 900]], score=[0.9, 0.2]), mpp=0.5).counts(threshold=0.5)
        {'cell': 1}
        """
        grid = Buckets.over(cells.xy, side=_BUCKET_PX)
        order, keys = grid.sort(cells.xy)
        label = np.maximum(cells.label[order], 0)
        score = np.ones(len(cells), np.float32) if cells.score is None else cells.score[order]
        classes = cells.classes or ("cell",)
        return cls(
            xy=cells.xy[order].astype(np.float32),
            label=label,
            score=score,
            source=order,
            classes=classes,
            colors=np.array(cells.colors or [_COLOR] * len(classes), np.uint8),
            mpp=mpp,
            _grid=grid,
            _keys=keys,
            _sorted_scores=_by_class(score, label, len(classes)),
        )

    def relabelled(
        self, label: NDArray[np.int16], classes: tuple[str, ...], colors: NDArray[np.uint8]
    ) -> "FoundCells":
        """Return the same cells with other classes."""
        scores = _by_class(self.score, label, len(classes))
        return replace(self, label=label, classes=classes, colors=colors, _sorted_scores=scores)

    def __len__(self) -> int:
        return len(self.xy)

    def ranges(self, area: Area) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return first and last rows of the buckets that meet an area: one range a row of buckets."""
        grid = self._grid
        far_x, far_y = grid.stride - 2 * MARGIN - 1, grid.rows - 2 * MARGIN - 1
        columns = np.clip((np.array(area[::2]) - grid.x0) / grid.side, -1, far_x + 1).astype(int) + MARGIN
        first, last = (
            np.clip((np.array(area[1::2]) - grid.y0) / grid.side, -1, far_y + 1).astype(int) + MARGIN
        )
        rows = np.arange(first, last + 1) * grid.stride
        starts = np.searchsorted(self._keys, rows + columns[0], side="left")
        ends = np.searchsorted(self._keys, rows + columns[1], side="right")
        return starts[ends > starts], ends[ends > starts]

    def rows_in(self, area: Area, *, threshold: float) -> NDArray[np.intp]:
        """Return the rows of the cells of at least a score in a half-open area."""
        starts, ends = self.ranges(area)
        rows = np.concatenate([*map(np.arange, starts, ends), np.empty(0, int)]).astype(np.intp)
        x, y = self.xy[rows].T
        x0, y0, x1, y1 = area
        inside: NDArray[np.intp] = rows[
            (x >= x0) & (x < x1) & (y >= y0) & (y < y1) & (self.score[rows] >= threshold)
        ]
        return inside

    def outlines(self, rows: NDArray[np.intp]) -> NDArray[np.object_]:
        """Read the outlines of some rows; None for points and without files."""
        shapes = np.full(len(rows), None)
        first = 0
        for file in self.files:
            number = pq.read_metadata(file).num_rows
            own = self.source[rows] - first
            is_own = (own >= 0) & (own < number)
            if is_own.any():
                column = pq.read_table(file, columns=["geometry"])["geometry"].combine_chunks()
                shapes[is_own] = shapely.from_wkb(column.take(own[is_own]).to_numpy(zero_copy_only=False))
            first += number
        shapes[shapely.get_type_id(shapes) == shapely.GeometryType.POINT] = None
        return shapes

    def counts(self, *, threshold: float) -> dict[str, int]:
        """Return the number of cells of each class and at least a score."""
        numbers = [len(each) - int(np.searchsorted(each, threshold)) for each in self._sorted_scores]
        return dict(zip(self.classes, numbers, strict=True))

    def counts_of(self, rows: NDArray[np.intp]) -> dict[str, int]:
        """Return the number of cells of each class among some rows."""
        numbers = np.bincount(self.label[rows], minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, numbers, strict=True))


def _by_class(
    score: NDArray[np.float32], label: NDArray[np.int16], classes: int
) -> tuple[NDArray[np.float32], ...]:
    return tuple(np.sort(score[label == k]) for k in range(classes))
