"""Bands of windows of tiles: what is read and decided together. Pure integers."""

import math
from dataclasses import dataclass

from sparseshot.errors import InputError
from sparseshot.images.slide import Box, Grid
from sparseshot.images.tiles import Tile, TileGrid
from sparseshot.images.tissue import TissueMask


@dataclass(frozen=True)
class Window:
    """A part of the grid in which cells are found together.

    Attributes:
        core: the pixels it is responsible for; the cores of all windows cover the grid, each pixel once.
        box: the core and a halo as wide as cells may extend beyond it, within the grid.
        tiles: the parts of the box that hold tissue; their cores do not overlap.
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
        next_y0: where the next band begins, in grid pixels; infinite for the last.
    """

    index: int
    windows: tuple[Window, ...]
    next_y0: float


@dataclass(frozen=True)
class WindowLayout:
    """Sizes in grid pixels.

    Attributes:
        tile_px: largest side of a tile's core.
        window_px: largest side of a window, its halo included.
        halo_px: how far a cell may extend beyond its window's core; 0 for points.
        band_windows: most windows in a band, if windows are independent; 0 for a whole row.
    """

    tile_px: int
    window_px: int
    halo_px: int = 0
    band_windows: int = 0


def plan(
    grid: Grid, tissue: TissueMask, layout: WindowLayout, *, margin_px: int, alignment_px: int
) -> tuple[Band, ...]:
    """Lay windows and tiles over a grid, leaving out those without tissue.

    All tiles of a plan have one size, so that they can be batched. They begin at multiples of
    ``alignment_px``, and are as small as possible without more tiles than ``tile_px`` requires.
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
    largest = layout.window_px // alignment_px * alignment_px
    halo, room = (0, largest) if longest <= largest else (halo, room)
    windows = TileGrid(grid.width, grid.height, even_px(longest, room, alignment_px), halo)
    bands: dict[tuple[int, int], list[Window]] = {}
    touched = [
        (index, windows[index].core, windows[index].padded.meet(grid.box))
        for index in tissue.touching(windows, grid)
    ]
    side = max((max(box.width, box.height) for _, _, box in touched), default=alignment_px)
    tile_px = even_px(side, layout.tile_px, alignment_px)
    for index, core, box in touched:
        tiles = _tiles(box, tissue, grid, tile_px, margin_px)
        part = 0 if layout.band_windows == 0 else int(index) % windows.columns // layout.band_windows
        bands.setdefault((core.y0, part), []).append(Window(core, box, tiles))
    starts = [*(y0 for y0, _ in bands), math.inf]
    return tuple(Band(index, tuple(row), starts[index + 1]) for index, row in enumerate(bands.values()))


def window_over(
    box: Box,
    grid: Grid,
    tissue: TissueMask,
    layout: WindowLayout,
    *,
    margin_px: int,
    alignment_px: int,
) -> Window:
    """Return one window over a box of a grid, with the halo of the layout where the grid continues."""
    halo = layout.halo_px
    outer = Box(box.x0 - halo, box.y0 - halo, box.x1 + halo, box.y1 + halo).meet(grid.box)
    x0, y0 = (start // alignment_px * alignment_px for start in outer[:2])
    aligned = Box(x0, y0, x0 + _up(outer.x1 - x0, alignment_px), y0 + _up(outer.y1 - y0, alignment_px))
    tile_px = even_px(max(aligned.width, aligned.height), layout.tile_px, alignment_px)
    return Window(box, aligned, _tiles(aligned, tissue, grid, tile_px, margin_px))


def _tiles(box: Box, tissue: TissueMask, grid: Grid, tile_px: int, margin_px: int) -> tuple[Tile, ...]:
    tiles = TileGrid(box.width, box.height, tile_px, margin_px)
    moved = (Tile(tile.index, _moved(tile.core, box), _moved(tile.padded, box)) for tile in tiles)
    return tuple(tile for tile in moved if tissue.covers(tile.core.meet(grid.box), grid))


def _moved(box: Box, by: Box) -> Box:
    return Box(box.x0 + by.x0, box.y0 + by.y0, box.x1 + by.x0, box.y1 + by.y0)


def even_px(length: int, most: int, alignment: int) -> int:
    """Return the least aligned size that covers a length in as few pieces as ``most`` allows.

    >>> even_px(1000, 600, 8), even_px(1000, 1024, 16), even_px(1000, 333, 1)
    (504, 1008, 250)
    """
    most = most // alignment * alignment
    pieces = -(-length // most)
    return _up(-(-length // pieces), alignment)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
