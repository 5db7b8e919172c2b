"""Tiles over a grid of pixels; their cores cover every pixel once."""

from collections.abc import Iterator
from dataclasses import dataclass

from sparseshot.errors import InputError
from sparseshot.images.slide import Box


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile.

    Attributes:
        index: its number in the :class:`TileGrid`.
        core: its own pixels, cut at the far edges of the grid.
        padded: the uncut core and the margin around it; the same size for all tiles, so it may extend past
            the edges of the grid.
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
        """Number of tiles in a row."""
        return -(-self.width // self.tile_px)

    @property
    def rows(self) -> int:
        """Number of rows of tiles."""
        return -(-self.height // self.tile_px)

    @property
    def padded_px(self) -> int:
        """Side of the padded tiles."""
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
