"""What finding has in common for places and outlines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.cells.table import KINDS
from sparseshot.images.slide import Grid, Slide
from sparseshot.prediction.plan import Layout, Window

SCORE_DECIMALS = 4
PLACE_DECIMALS = 2
"""Scores are rounded to 0.0001 and places to 0.01 level-0 pixels before anything is decided by them."""

# Told apart by most people, and by those who do not tell red from green (Okabe & Ito 2008).
_COLORS = (
    (213, 94, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
)


class Finder(Protocol):
    """Turns outputs of a network into cells. Its methods depend on their arguments alone."""

    def layout(self, tile_px: int) -> Layout:
        """Return the sizes of windows for a size of tiles."""
        ...

    def settings(self) -> dict[str, float]:
        """Tell what decides the result besides model and slide."""
        ...

    def reduce(self, output: Tensor) -> tuple[Tensor, ...]:
        """Take what is needed off a batch of outputs, without the margin, to the host; first axis: tiles."""
        ...

    def find(self, window: Window, parts: Sequence[tuple[Tensor, ...]]) -> Cells:
        """Return the cells of a window from what was taken of each of its tiles."""
        ...

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:
        """Return the cells that are decided, in reading order, and those that the next band decides.

        Args:
            cells: of the windows of a band, and those left undecided by the band before.
            next_y0: where the next band begins, in pixels of the grid; infinite if there is none.
        """
        ...


@dataclass(frozen=True)
class SlideFrame:
    """What of a slide goes into a table of its cells.

    Attributes:
        size: width and height in level-0 pixels.
        mpp: µm of a level-0 pixel.
        grid: the pixels the network sees.
        classes: names of what is found.
    """

    size: tuple[int, int]
    mpp: float
    grid: Grid
    classes: tuple[str, ...]

    @classmethod
    def over(cls, slide: Slide, *, mpp: float, classes: tuple[str, ...]) -> "SlideFrame":
        """Take the frame of a slide seen at ``mpp``."""
        return cls(slide.size, slide.mpp, Grid.over(slide, mpp), classes)

    def cells(
        self,
        xy: NDArray[np.float64],
        *,
        label: NDArray[np.integer],
        score: NDArray[np.floating],
        outline: NDArray[np.object_] | None = None,
        measurements: Mapping[str, NDArray[np.float64]] = MappingProxyType({}),
    ) -> Cells:
        """Make a table of cells at level-0 places, which are rounded and kept on the slide."""
        return Cells(
            np.clip(np.round(xy, PLACE_DECIMALS), 0, self.size) if outline is None else xy,
            classes=self.classes,
            label=label,
            score=score,
            outline=outline,
            mpp=self.mpp,
            measurements=measurements,
            kind=np.full(len(xy), KINDS.index("detection"), np.uint8),
            colors=[_COLORS[index % len(_COLORS)] for index in range(len(self.classes))],
        )

    def no_cells(self) -> Cells:
        """Make an empty table."""
        return self.cells(np.empty((0, 2)), label=np.empty(0, np.int16), score=np.empty(0))


def in_reading_order(cells: Cells) -> Cells:
    """Sort by y, then x, then class: an order that does not tell how the cells were found."""
    return cells[np.lexsort((cells.label, cells.xy[:, 0], cells.xy[:, 1]))]
