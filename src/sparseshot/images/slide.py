"""The `Slide` protocol, boxes of pixels, and the grid of pixels at a target resolution."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparseshot.cells import Cells, rasterise
from sparseshot.errors import InputError, SparseshotWarning

_COARSE = 2.04
"""A slide with this many times larger pixels than the target resolution shows no cells to a model."""

FINEST = 16
"""A grid may be this many times finer than its slide; more is a wrong resolution."""

SNAP = 0.02
"""A resolution within this share of a whole ratio to the slide's is taken as that ratio.

A scanner that writes 0.2527 µm means 0.25, one that writes 0.499 means 0.5: two per cent of a nucleus is
0.2 µm, while pixels averaged over 1.98 × 1.98 others are blurred unevenly and cost twice as much.
"""


class Slide(Protocol):
    """A large image with a pixel size. Any number of threads may read at once.

    A class that inherits from it gets the thumbnail, a close that does nothing, and the context manager.
    """

    @property
    def name(self) -> str:
        """Name for messages and results."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in level-0 pixels."""

    @property
    def mpp(self) -> float:
        """µm per level-0 pixel."""

    def read(self, grid: "Grid", box: "Box") -> NDArray[np.uint8]:
        """Read a box of grid pixels as ``(height, width, 3)`` RGB, white outside the slide.

        A pixel has the same value in every box that contains it. See :func:`read_region` for level-0
        coordinates.
        """

    def thumbnail(self, max_px: int) -> NDArray[np.uint8]:
        """Read the whole slide as ``(H, W, 3)`` RGB, its longer side at most ``max_px``."""
        grid = Grid.thumbnail(self, max_px)
        return self.read(grid, grid.box)

    def close(self) -> None:
        """Close the file; reading afterwards is an error."""
        return  # not abstract: most slides have no file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Box(NamedTuple):
    """A half-open rectangle of pixels."""

    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def width(self) -> int:
        """Pixels across."""
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        """Pixels down."""
        return self.y1 - self.y0

    def meet(self, other: "Box") -> "Box":
        """Return the intersection; where there is none it is empty, never negative.

        >>> Box(0, 0, 10, 10).meet(Box(5, -5, 20, 5))
        Box(x0=5, y0=0, x1=10, y1=5)
        """
        x0, y0 = max(self.x0, other.x0), max(self.y0, other.y0)
        return Box(x0, y0, max(x0, min(self.x1, other.x1)), max(y0, min(self.y1, other.y1)))

    def blocks(self, width: int, height: int) -> Iterator["Box"]:
        """Yield the blocks of this size that overlap the box, row by row; one begins at (0, 0).

        >>> [tuple(block) for block in Box(5, 0, 12, 4).blocks(10, 4)]
        [(0, 0, 10, 4), (10, 0, 20, 4)]
        """
        for y in range(self.y0 // height * height, self.y1, height):
            for x in range(self.x0 // width * width, self.x1, width):
                yield Box(x, y, x + width, y + height)

    def within(self, outer: "Box") -> tuple[slice, slice]:
        """Return its rows and columns in an array of the pixels of ``outer``.

        >>> Box(5, 0, 10, 5).within(Box(5, -5, 20, 5))
        (slice(5, 10, None), slice(0, 5, None))
        """
        return (
            slice(self.y0 - outer.y0, self.y1 - outer.y0),
            slice(self.x0 - outer.x0, self.x1 - outer.x0),
        )


@dataclass(frozen=True)
class Grid:
    """The pixels of one size over a whole slide, counted from its top left corner.

    Pixel (column, row) covers the level-0 square that begins at (column, row) · downsample.

    Attributes:
        width: number of columns; the last may extend past the edge of the slide.
        height: number of rows, likewise.
        downsample: level-0 pixels per grid pixel, in x and y.
        mpp: µm per grid pixel; within :data:`SNAP` of the target resolution.
    """

    width: int
    height: int
    downsample: float
    mpp: float

    @classmethod
    def over(cls, slide: Slide, mpp: float | None = None) -> "Grid":
        """Return the grid over a slide at a target resolution; None for level 0 itself."""
        return cls.of(slide.size, slide.mpp, slide.mpp if mpp is None else mpp)

    @classmethod
    def of(cls, size: tuple[int, int], slide_mpp: float, mpp: float) -> "Grid":
        """Return the grid of ``mpp`` over ``size`` level-0 pixels of ``slide_mpp``.

        >>> Grid.of((1001, 500), 0.2527, 0.5)
        Grid(width=501, height=250, downsample=2.0, mpp=0.5054)
        >>> Grid.of((1000, 500), 0.25, 0.4).downsample
        1.6
        """
        check_mpp(mpp)
        if slide_mpp / mpp > FINEST:
            raise InputError(
                f"a slide of {slide_mpp:g} µm per pixel cannot be read at {mpp:g} µm; if that is its "
                "magnification, give µm instead (40x is about 0.25, 20x about 0.5)"
            )
        return cls._of(size, slide_mpp, snapped(mpp / slide_mpp))

    @classmethod
    def thumbnail(cls, slide: Slide, max_px: int) -> "Grid":
        """Return the grid whose longer side is at most ``max_px``, never finer than level 0."""
        if max_px < 1:
            raise InputError(f"max_px is {max_px}; give the pixels of the longer side, e.g. 1024")
        return cls._of(slide.size, slide.mpp, max(1.0, max(slide.size) / max_px))

    @classmethod
    def _of(cls, size: tuple[int, int], slide_mpp: float, downsample: float) -> "Grid":
        # A whole number of pixels must not become one more by a rounding error.
        width, height = (max(1, math.ceil(length / downsample - 1e-6)) for length in size)
        return cls(width, height, downsample, slide_mpp * downsample)

    @property
    def box(self) -> Box:
        """The whole grid."""
        return Box(0, 0, self.width, self.height)

    def to_level0(self, xy: ArrayLike) -> NDArray[np.float64]:
        """Convert coordinates from grid pixels to level-0 pixels.

        Args:
            xy: points ``(…, 2)``, boxes ``(…, 4)``, or lengths of any shape. For geometries, pass the method
                to ``shapely.transform``.

        >>> Grid.of((1000, 500), 0.25, 0.5).to_level0(Box(0, 10, 20, 30))
        array([ 0., 20., 40., 60.])
        """
        return np.asarray(xy, np.float64) * self.downsample

    def from_level0(self, xy: ArrayLike) -> NDArray[np.float64]:
        """Convert coordinates from level-0 pixels to grid pixels; the inverse of :meth:`to_level0`."""
        return np.asarray(xy, np.float64) / self.downsample

    def rasterise(
        self, cells: Cells, box: Box, *, by: Literal["label", "instance"] = "label", radius_px: float = 3.0
    ) -> NDArray[np.int32]:
        """Draw cells, in level-0 pixels, into a box of this grid; see :func:`sparseshot.cells.rasterise`."""
        x0, y0 = self.to_level0(box[:2])
        return rasterise(
            cells,
            (box.height, box.width),
            scale=1 / self.downsample,
            origin=(x0, y0),
            by=by,
            radius_px=radius_px,
        )


def check_mpp(mpp: float) -> None:
    """Raise InputError unless this can be the size of a pixel in µm, of a slide or of a coarse view."""
    if not 1e-4 <= mpp <= 1e5:
        raise InputError(f"mpp is {mpp:g}; give µm per pixel, e.g. 0.25 for 40x or 0.5 for 20x")


def warn_if_coarse(slide: Slide, mpp: float) -> None:
    """Warn of a slide whose pixels are far larger than those at which a model works."""
    if slide.mpp > _COARSE * mpp:
        warnings.warn(
            f"{slide.name} has {slide.mpp:.3g} µm per pixel, and the model works at {mpp:.3g}: cells cannot "
            "be seen at this resolution; scan it with a stronger objective, or check its pixel size",
            SparseshotWarning,
            stacklevel=1,  # told once, whoever asks
        )


def read_region(
    slide: Slide, x0: float, y0: float, width: int, height: int, *, mpp: float | None = None
) -> NDArray[np.uint8]:
    """Read ``(height, width, 3)`` RGB at a place in level-0 pixels; white outside the slide.

    Args:
        slide: the slide.
        x0: left edge in level-0 pixels; moved to the nearest pixel of the grid.
        y0: top edge, likewise.
        width: in pixels of the target resolution.
        height: in pixels of the target resolution.
        mpp: target resolution in µm per pixel; None for level 0.
    """
    grid = Grid.over(slide, mpp)
    column, row = np.rint(grid.from_level0((x0, y0))).astype(int).tolist()
    return slide.read(grid, Box(column, row, column + width, row + height))


def snapped(downsample: float) -> float:
    """Return the whole number, or its reciprocal, within :data:`SNAP` of a ratio; else the ratio itself.

    >>> snapped(1.979), snapped(0.495), snapped(1.5)
    (2.0, 0.5, 1.5)
    """
    if downsample >= 1 - SNAP:
        whole = float(max(1, round(downsample)))
        return whole if abs(downsample / whole - 1) <= SNAP else downsample
    return 1 / snapped(1 / downsample)
