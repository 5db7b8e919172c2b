"""Tiles over a grid of pixels, whose cores cover every pixel once; reading them ahead of their use."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, SlideError
from sparseshot.images.slide import Box, Grid, Slide


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


def read_undamaged(
    slide: Slide, grid: Grid, box: Box, *, piece_px: int
) -> tuple[NDArray[np.uint8], dict[Box, str]]:
    """Read a box, white where the slide is damaged.

    Damage is located in squares of ``piece_px``, counted from the corner of the grid, so that the same pixels
    are white in every box that contains them.

    Returns:
        The pixels and, for each square that cannot be read, the reason.
    """
    try:
        return slide.read(grid, box), {}
    except SlideError:
        pixels = np.full((box.height, box.width, 3), 255, np.uint8)
    broken = {}
    for piece in box.blocks(piece_px, piece_px):
        part = piece.meet(box)
        try:
            pixels[part.within(box)] = slide.read(grid, piece)[part.within(piece)]
        except SlideError as error:
            broken[piece.meet(grid.box)] = error.problem
    return pixels, broken


Item = TypeVar("Item")
Result = TypeVar("Result")


def read_ahead(
    slide: Slide, grid: Grid, boxes: Iterable[Box], *, threads: int = 2, ahead: int = 8
) -> Generator[tuple[Box, NDArray[np.uint8] | SlideError], None, None]:
    """Read boxes of a slide in order, while the caller works on earlier ones.

    For a box that cannot be read the error is yielded, and reading continues. Leaving the loop early stops
    the threads, immediately under ``contextlib.closing``.

    Args:
        slide: the slide; its ``read`` runs in several threads at once.
        grid: the pixels to read.
        boxes: in pixels of the grid; consumed only as far ahead as is read.
        threads: number of threads.
        ahead: number of boxes read beyond the one the caller has, which bounds memory.
    """
    if threads < 1 or ahead < 1:
        raise InputError(f"{threads} threads reading {ahead} boxes ahead; give at least 1 of each")

    def read(box: Box) -> tuple[Box, NDArray[np.uint8] | SlideError]:
        try:
            return box, slide.read(grid, box)
        except SlideError as error:
            return box, error

    return work_ahead(read, boxes, threads=threads, ahead=ahead)


def work_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Yield the result for each item in order, computed in threads up to ``ahead`` items before its use.

    Without threads, it is computed when it is needed.
    """
    if not threads:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
