"""Found cells in memory, indexed by place: the cost of a view depends on what it shows."""

from dataclasses import dataclass
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
    """An immutable index of found cells: 30 bytes each.

    Attributes:
        cells: sorted by buckets, with scores and colours, without outlines.
        source: ``(N,)`` int32, row in the table that the index was made of: ``files``, one after the other.
        version: of what is shown; another one for other cells, classes or colours.
        files: tables with the outlines; empty for derived results.
        features: ``(N, F)`` by which kinds are told apart; None where they were not kept.
        until: time by the monotonic clock before which a growing result is not read again.
    """

    cells: Cells
    source: NDArray[np.int32]
    _grid: Buckets
    _keys: NDArray[np.signedinteger]
    version: str = ""
    files: tuple[Path, ...] = ()
    features: NDArray[np.float16] | None = None
    until: float = 0.0

    @classmethod
    def of(cls, cells: Cells, *, mpp: float) -> "FoundCells":
        """Sort a table of cells.

        >>> FoundCells.of(Cells([[5, 5], [900, 900]], score=[0.9, 0.2]), mpp=0.5).counts(threshold=0.5)
        {'cell': 1}
        """
        grid = Buckets.over(cells.xy, side=_BUCKET_PX)
        order, keys = grid.sort(cells.xy)
        classes = cells.classes or ("cell",)
        own = Cells(
            cells.xy[order],
            classes=classes,
            label=np.maximum(cells.label[order], 0),
            score=np.ones(len(cells), np.float32) if cells.score is None else cells.score[order],
            colors=cells.colors or [_COLOR] * len(classes),
            mpp=mpp,
        )
        return cls(own, order, grid, keys)

    @property
    def score(self) -> NDArray[np.float32]:
        """Scores of the cells."""
        assert self.cells.score is not None
        return self.cells.score

    @property
    def mpp(self) -> float:
        """µm per level-0 pixel."""
        assert self.cells.mpp is not None
        return self.cells.mpp

    def __len__(self) -> int:
        return len(self.cells)

    def rows_in(self, area: Area | shapely.Geometry, *, threshold: float) -> NDArray[np.intp]:
        """Return the rows of the cells of at least a score in a half-open box, or in a polygon."""
        x0, y0, x1, y1 = area.bounds if isinstance(area, shapely.Geometry) else area
        grid = self._grid
        far = np.array([grid.stride, grid.rows]) - 2 * MARGIN
        corners = (np.array([[x0, y0], [x1, y1]]) - (grid.x0, grid.y0)) / grid.side
        (left, first), (right, last) = np.clip(corners, -1, far).astype(int) + MARGIN
        keys = np.arange(first, last + 1) * grid.stride  # of the rows of buckets
        starts = np.searchsorted(self._keys, keys + left, side="left")
        ends = np.searchsorted(self._keys, keys + right, side="right")
        rows = np.concatenate([*map(np.arange, starts, ends), np.empty(0, int)]).astype(np.intp)
        rows = rows[self.score[rows] >= threshold]
        x, y = self.cells.xy[rows].T
        is_inside = (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
        if isinstance(area, shapely.Geometry):
            is_inside = shapely.contains_xy(area, x, y)
        return np.asarray(rows[is_inside])

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

    def counts(self, area: Area | shapely.Geometry | None = None, *, threshold: float) -> dict[str, int]:
        """Return the number of cells of each class and at least a score, in an area or in all."""
        rows = self.score >= threshold if area is None else self.rows_in(area, threshold=threshold)
        numbers = np.bincount(self.cells.label[rows], minlength=len(self.cells.classes)).tolist()
        return dict(zip(self.cells.classes, numbers, strict=True))
