"""What is looked at in which order: bands of windows of tiles. Pure integers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.images.slide import Box, Grid
from sparseshot.images.tiles import Tile, TileGrid
from sparseshot.images.tissue import TissueMask


@dataclass(frozen=True)
class Tissue:
    """Where there is something to look at.

    Attributes:
        mask: ``(h, w)`` bool over the whole grid.
        mask_px: pixels of the grid for one pixel of the mask.
    """

    mask: NDArray[np.bool_]
    mask_px: float

    @classmethod
    def of(cls, found: TissueMask, grid: Grid) -> Self:
        """Take the tissue that was found on the slide that the grid lies over."""
        return cls(found.mask, found.grid.downsample / grid.downsample)

    @classmethod
    def everywhere(cls, grid: Grid) -> Self:
        """Take the whole grid for tissue."""
        return cls(np.ones((1, 1), np.bool_), float(max(grid.width, grid.height)))

    def at(self, x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Tell it of every column at ``x`` and row at ``y`` in pixels of the grid, ``(len(y), len(x))``."""
        height, width = self.mask.shape
        column = np.clip((x / self.mask_px).astype(np.intp), 0, width - 1)
        row = np.clip((y / self.mask_px).astype(np.intp), 0, height - 1)
        return self.mask[row[:, None], column]

    def meets(self, box: Box) -> bool:
        """Tell whether there is any in a box that lies in the grid."""
        rows, columns = (
            slice(math.floor(first / self.mask_px), math.ceil(end / self.mask_px))
            for first, end in ((box.y0, box.y1), (box.x0, box.x1))
        )
        return bool(self.mask[rows, columns].any())


@dataclass(frozen=True)
class Window:
    """What is looked at as a whole.

    Attributes:
        core: the pixels it answers for; the cores of all windows cover the grid, each pixel once.
        box: the core and, where objects may reach over its border, as much around it as they may reach.
        tiles: those parts of the box that hold tissue; their cores do not overlap.
    """

    core: Box
    box: Box
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Band:
    """A row of windows, or a part of one, from which one shard is made.

    Attributes:
        index: 0 for the first.
        windows: those that hold tissue, from left to right.
        next_y0: where the next band begins, in pixels of the grid; infinite for the last.
    """

    index: int
    windows: tuple[Window, ...]
    next_y0: float

    @property
    def tiles(self) -> Iterator[tuple[Window, Tile]]:
        """Every tile with its window."""
        return ((window, tile) for window in self.windows for tile in window.tiles)


@dataclass(frozen=True)
class Layout:
    """Sizes in pixels of the grid.

    Attributes:
        tile_px: largest side of a tile's core.
        window_px: largest side of a window, its halo included.
        halo_px: how far an object may reach over the border of its window's core; 0 for points.
        band_windows: most windows in a band, where windows do not depend on one another; 0 for a whole row.
    """

    tile_px: int
    window_px: int
    halo_px: int = 0
    band_windows: int = 0


def plan(
    grid: Grid, tissue: Tissue, layout: Layout, *, margin_px: int, alignment_px: int
) -> tuple[Band, ...]:
    """Lay windows and tiles over a grid; bands, windows and tiles without tissue are left out.

    Tiles of one plan are all of one size, so that they can be batched. They begin at multiples of
    ``alignment_px``, and are no larger than they need be to cover the grid in as few as ``tile_px`` allows.
    """
    if layout.tile_px < alignment_px:
        raise InputError(f"tiles of {layout.tile_px} pixels; this model needs {alignment_px} or more")
    halo = _up(layout.halo_px, alignment_px)
    room = layout.window_px - 2 * halo
    if halo and room < max(halo, alignment_px):
        raise InputError(
            f"windows of {layout.window_px} pixels leave {room} between halos of {halo}; "
            f"give {3 * halo} or more"
        )
    longest = max(grid.width, grid.height)
    # A window that holds the whole grid needs no halo.
    halo, room = (0, layout.window_px) if longest <= layout.window_px else (halo, room)
    windows = TileGrid(grid.width, grid.height, _even(longest, room, alignment_px), halo)
    bands: dict[tuple[int, int], list[Window]] = {}
    tile_px = _even(windows.padded_px, layout.tile_px, alignment_px)
    for index in windows.touching(tissue.mask, mask_px=tissue.mask_px):
        box, core = windows[index].padded, windows[index].core
        tiles = _tiles(box, tissue, grid, tile_px, margin_px)
        part = 0 if layout.band_windows == 0 else int(index) % windows.columns // layout.band_windows
        bands.setdefault((core.y0, part), []).append(Window(core, box, tiles))
    starts = [*(y0 for y0, _ in bands), math.inf]
    return tuple(Band(index, tuple(row), starts[index + 1]) for index, row in enumerate(bands.values()))


def _tiles(box: Box, tissue: Tissue, grid: Grid, tile_px: int, margin_px: int) -> tuple[Tile, ...]:
    tiles = TileGrid(box.width, box.height, tile_px, margin_px)
    moved = (Tile(tile.index, _moved(tile.core, box), _moved(tile.padded, box)) for tile in tiles)
    return tuple(tile for tile in moved if tissue.meets(tile.core.meet(grid.box)))


def _moved(box: Box, by: Box) -> Box:
    return Box(box.x0 + by.x0, box.y0 + by.y0, box.x1 + by.x0, box.y1 + by.y0)


def _even(length: int, most: int, alignment: int) -> int:
    """Return the least aligned size that covers a length in as few pieces as ``most`` allows.

    >>> _even(1000, 600, 8), _even(1000, 1024, 16), _even(1000, 333, 1)
    (504, 1008, 250)
    """
    most = most // alignment * alignment
    pieces = -(-length // most)
    return _up(-(-length // pieces), alignment)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
