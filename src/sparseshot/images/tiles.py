"""Tiles over a grid of pixels: pure integers, nothing lost, nothing twice."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.images.slide import Box


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: what it answers for, and what is read for it.

    Attributes:
        index: its number in the :class:`TileGrid`.
        core: its own pixels; the cores of all tiles cover the grid, each pixel once, cut at the far edges.
        padded: the uncut core and the margin round it; of one size, so that it may reach over the edges.
    """

    index: int
    core: Box
    padded: Box


@dataclass(frozen=True)
class TileGrid:
    """Tiles over ``width`` × ``height`` pixels, numbered row by row.

    >>> tiles = TileGrid(width=1000, height=600, tile_px=512, margin_px=32)
    >>> len(tiles), tiles[1]
    (4, Tile(index=1, core=Box(x0=512, y0=0, x1=1000, y1=512), padded=Box(x0=480, y0=-32, x1=1056, y1=544)))
    >>> tiles.index_at(999, 599)
    3
    """

    width: int
    height: int
    tile_px: int
    margin_px: int = 0

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise InputError(f"tiles over {self.width} × {self.height} pixels; give at least 1 × 1")
        if self.tile_px < 1 or self.margin_px < 0:
            raise InputError(
                f"tiles of {self.tile_px} pixels with a margin of {self.margin_px}; "
                "give a positive size and a margin of 0 or more"
            )

    @property
    def columns(self) -> int:
        """Tiles in a row."""
        return -(-self.width // self.tile_px)

    @property
    def rows(self) -> int:
        """Rows of tiles."""
        return -(-self.height // self.tile_px)

    @property
    def padded_px(self) -> int:
        """Width and height of what is read for each tile."""
        return self.tile_px + 2 * self.margin_px

    def __len__(self) -> int:
        return self.columns * self.rows

    def __iter__(self) -> Iterator[Tile]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Tile:
        """Return a tile by its number."""
        if not 0 <= index < len(self):
            raise IndexError(f"tile {index} of {len(self)}")
        row, column = divmod(int(index), self.columns)
        x0, y0 = column * self.tile_px, row * self.tile_px
        core = Box(x0, y0, min(x0 + self.tile_px, self.width), min(y0 + self.tile_px, self.height))
        m, size = self.margin_px, self.padded_px
        return Tile(int(index), core, Box(x0 - m, y0 - m, x0 - m + size, y0 - m + size))

    def index_at(self, x: float, y: float) -> int:
        """Return the number of the tile whose core holds a place."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise InputError(f"({x}, {y}) lies outside {self.width} × {self.height} pixels")
        return int(y // self.tile_px) * self.columns + int(x // self.tile_px)

    def touching(self, mask: NDArray[np.bool_], *, mask_px: float) -> NDArray[np.intp]:
        """Return the numbers of the tiles whose core meets the mask, in order.

        Args:
            mask: ``(h, w)`` bool over the same area from the same corner; beyond it counts as False.
            mask_px: pixels of the grid for one pixel of the mask; any positive number.
        """
        step = self.tile_px / mask_px
        rows = _spans(self.rows, step, end=self.height / mask_px)
        columns = _spans(self.columns, step, end=self.width / mask_px)
        lines = np.stack([mask[row].any(axis=0) for row in rows])
        return np.flatnonzero(np.stack([lines[:, column].any(axis=1) for column in columns], axis=1))

    def shards(self, rows: int) -> list[range]:
        """Return numbers of the tiles in shards of so many whole rows of tiles; the last may be smaller."""
        if rows < 1:
            raise InputError(f"{rows} rows of tiles in a shard; give at least 1")
        return [
            range(row * self.columns, min(row + rows, self.rows) * self.columns)
            for row in range(0, self.rows, rows)
        ]


def _spans(count: int, step: float, *, end: float) -> list[slice]:
    """Return the mask pixels that each of the spans [k·step, (k + 1)·step), cut at ``end``, reaches."""
    edges = np.minimum(np.arange(count + 1) * step, end)
    # What a span reaches only by a rounding error it does not reach.
    first, last = np.floor(edges[:-1] + 1e-9), np.ceil(edges[1:] - 1e-9)
    return [slice(int(a), int(b)) for a, b in zip(first, last, strict=True)]
