"""What a slide is to everybody who reads one, and the grid of pixels of a wished size over it."""

import math
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError

SNAP = 0.02
"""Where slide and wish differ from a whole ratio by at most this share, the whole ratio is taken.

A scanner that writes 0.2527 µm means 0.25, a 0.499 means 0.5: two per cent of a nucleus is 0.2 µm, while
pixels averaged over 1.98 × 1.98 others are blurred unevenly and cost twice as much.
"""


class Slide(Protocol):
    """A large image whose pixels have a size. Any number of threads may read at once."""

    @property
    def name(self) -> str:
        """What to call it in messages and results."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in level-0 pixels."""

    @property
    def mpp(self) -> float:
        """µm of a level-0 pixel."""

    def read(
        self, x0: float, y0: float, width: int, height: int, *, mpp: float | None = None
    ) -> NDArray[np.uint8]:
        """Read ``(height, width, 3)`` RGB; outside the slide it is white.

        The pixels are those of the :class:`Grid` of ``mpp`` over the slide, so that a region has the same
        values whether it is read alone or as part of a larger one.

        Args:
            x0: left edge in level-0 pixels; moved to the nearest pixel of the grid.
            y0: top edge, likewise.
            width: in pixels of the wished size.
            height: in pixels of the wished size.
            mpp: µm of the wished pixels; None for level 0.
        """

    def thumbnail(self, max_px: int) -> NDArray[np.uint8]:
        """Read all of it as ``(H, W, 3)`` RGB, its longer side at most ``max_px``."""

    def close(self) -> None:
        """Let go of the file; reading afterwards is an error."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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
        """Return what lies in both; empty, never negative, where they do not meet.

        >>> Box(0, 0, 10, 10).meet(Box(5, -5, 20, 5))
        Box(x0=5, y0=0, x1=10, y1=5)
        """
        x0, y0 = max(self.x0, other.x0), max(self.y0, other.y0)
        return Box(x0, y0, max(x0, min(self.x1, other.x1)), max(y0, min(self.y1, other.y1)))

    def within(self, outer: "Box") -> tuple[slice, slice]:
        """Return its rows and columns in an array that holds the pixels of another box.

        >>> Box(5, 0, 10, 5).within(Box(5, -5, 20, 5))
        (slice(5, 10, None), slice(0, 5, None))
        """
        return (
            slice(self.y0 - outer.y0, self.y1 - outer.y0),
            slice(self.x0 - outer.x0, self.x1 - outer.x0),
        )


@dataclass(frozen=True)
class Grid:
    """The pixels of one size over a whole slide, counted from its corner.

    Pixel (column, row) covers the level-0 square from (column, row) · downsample on; a place in level-0
    pixels divided by ``downsample`` is the place in pixels of the grid.

    Attributes:
        width: pixels across; the last one may reach over the edge of the slide.
        height: pixels down.
        downsample: level-0 pixels for one pixel of the grid, across and down.
        mpp: µm of a pixel of the grid; within :data:`SNAP` of what was wished.
    """

    width: int
    height: int
    downsample: float
    mpp: float

    @classmethod
    def over(cls, slide: Slide, mpp: float | None = None) -> "Grid":
        """Lay the grid of a wished µm/px over a slide; without a wish, level 0 itself."""
        return cls.of(slide.size, slide.mpp, slide.mpp if mpp is None else mpp)

    @classmethod
    def of(cls, size: tuple[int, int], slide_mpp: float, mpp: float) -> "Grid":
        """Lay the grid of ``mpp`` over ``size`` level-0 pixels of ``slide_mpp``.

        >>> Grid.of((1001, 500), 0.2527, 0.5)
        Grid(width=501, height=250, downsample=2.0, mpp=0.5054)
        >>> Grid.of((1000, 500), 0.25, 0.4).downsample
        1.6
        """
        if not (math.isfinite(mpp) and mpp > 0):
            raise InputError(f"mpp is {mpp}; give µm per pixel, e.g. 0.5 for 20x")
        downsample = snapped(mpp / slide_mpp)
        # A whole number of pixels must not become one more by a rounding error.
        width, height = (max(1, math.ceil(length / downsample - 1e-6)) for length in size)
        return cls(width, height, downsample, slide_mpp * downsample)

    @property
    def box(self) -> Box:
        """All of it."""
        return Box(0, 0, self.width, self.height)

    def read(self, slide: Slide, box: Box) -> NDArray[np.uint8]:
        """Read a box of pixels of this grid from the slide it lies over."""
        x0, y0 = box.x0 * self.downsample, box.y0 * self.downsample
        return slide.read(x0, y0, box.width, box.height, mpp=self.mpp)


def snapped(downsample: float) -> float:
    """Take the whole number, or one over it, that lies within :data:`SNAP` of a ratio; else the ratio itself.

    >>> snapped(1.979), snapped(0.495), snapped(1.5)
    (2.0, 0.5, 1.5)
    """
    if downsample >= 1 - SNAP:
        whole = float(max(1, round(downsample)))
        return whole if abs(downsample / whole - 1) <= SNAP else downsample
    return 1 / snapped(1 / downsample)
