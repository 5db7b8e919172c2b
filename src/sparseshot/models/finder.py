"""From a network's outputs to cells: what both tasks share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.cells.table import KINDS, PALETTE
from sparseshot.images.slide import Box, Grid, Slide, warn_if_coarse
from sparseshot.metrics import AreaCounts, ScoredHits
from sparseshot.models.kind_head import KindHead
from sparseshot.models.windows import Window, WindowLayout

if TYPE_CHECKING:
    from sparseshot.models.task import Task

SCORE_DECIMALS = 4
PLACE_DECIMALS = 2
"""Scores are rounded to 0.0001 and places to 0.01 level-0 pixels before anything is decided by them."""

LOWEST_SCORE = 0.01
"""Lowest threshold at which detections are scored: a lower one would find everything."""

Part = tuple[Tensor, ...]
"""What :meth:`Finder.reduce` keeps of the output of one tile."""


class Finder(Protocol):
    """Turns outputs of a network over a slide into cells. Its methods are pure functions."""

    @property
    def task(self) -> "Task":
        """The task of the network."""
        ...

    def layout(self, tile_px: int) -> WindowLayout:
        """Return the sizes of windows for a tile size."""
        ...

    def settings(self) -> dict[str, float]:
        """Return everything that decides the result besides model and slide."""
        ...

    def reduce(self, output: Tensor) -> Part:
        """Return what is needed of a batch of outputs, without the margin, on the CPU."""
        ...

    def find(self, window: Window, parts: Sequence[Part]) -> Cells:
        """Return the cells of a window from the parts of its tiles."""
        ...

    def find_with_features(self, window: Window, parts: Sequence[Part]) -> tuple[Cells, NDArray[np.float32]]:
        """Return the cells of a window, and ``(N, kind_features)`` features for the kind of each."""
        ...

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:
        """Return the decided cells in reading order, and those that the next band decides.

        Args:
            cells: of the windows of a band, and those left undecided by the band before.
            next_y0: where the next band begins, in grid pixels; infinite if there is none.
        """
        ...

    def hits(
        self, window: Window, parts: Sequence[Part], truth: Cells, counted: NDArray[np.bool_]
    ) -> ScoredHits:
        """Score the pixels or cells of a window against the truth.

        Args:
            window: the window.
            parts: of its tiles.
            truth: every cell, in level-0 pixels.
            counted: ``(H, W)`` the pixels of the window's core that count.
        """
        ...

    def area_counts(
        self,
        window: Window,
        parts: Sequence[Part],
        truth: Cells,
        counted: NDArray[np.bool_],
        *,
        threshold: float,
    ) -> AreaCounts | None:
        """Compare the outlines found at a threshold with the true ones; None without outlines.

        The other arguments are those of :meth:`hits`.
        """
        ...

    def mark_scores(
        self, window: Window, parts: Sequence[Part], label: NDArray[np.int16], xy: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the scores of the marks, and those of all pixels or cells found.

        Args:
            window: the window.
            parts: of its tiles.
            label: label map of the window's core; ignored pixels do not count.
            xy: ``(K, 2)`` places of the positive marks, in grid pixels.
        """
        ...

    def confident(self, window: Window, parts: Sequence[Part], label: NDArray[np.int16]) -> Cells:
        """Return what scores above the threshold where the label map of the core is unannotated."""
        ...


@dataclass(frozen=True)
class SlideFrame:
    """Slide geometry and class names needed to build :class:`Cells`.

    Attributes:
        size: width and height in level-0 pixels.
        mpp: µm per level-0 pixel.
        grid: the pixels the network sees.
        classes: names of the classes.
        colors: red, green and blue of each class.
        kinds: assigns the classes to found cells, if they are kinds.
    """

    size: tuple[int, int]
    mpp: float
    grid: Grid
    classes: tuple[str, ...]
    colors: tuple[tuple[int, int, int], ...]
    kinds: KindHead | None = None

    @classmethod
    def over(
        cls, slide: Slide, *, mpp: float, classes: tuple[str, ...], colors: tuple[str, ...] = ()
    ) -> Self:
        """Return the frame of a slide at a target resolution; colours are ``#rrggbb``, or a palette."""
        warn_if_coarse(slide, mpp)
        palette = tuple(PALETTE[index % len(PALETTE)] for index in range(len(classes)))
        given = tuple((red, green, blue) for red, green, blue in (bytes.fromhex(c[1:]) for c in colors))
        return cls(slide.size, slide.mpp, Grid.over(slide, mpp), classes, given or palette)

    def cells(
        self,
        xy: NDArray[np.float64],
        *,
        label: NDArray[np.integer],
        score: NDArray[np.floating],
        outline: NDArray[np.object_] | None = None,
        measurements: Mapping[str, NDArray[np.floating]] = MappingProxyType({}),
    ) -> Cells:
        """Return a table of cells at level-0 places, rounded and clipped to the slide."""
        return Cells(
            np.clip(np.round(xy, PLACE_DECIMALS), 0, self.size) if outline is None else xy,
            classes=self.classes,
            label=label,
            score=score,
            outline=outline,
            mpp=self.mpp,
            measurements=measurements,
            kind=np.full(len(xy), KINDS.index("detection"), np.uint8),
            colors=self.colors,
        )

    def with_kinds(self, cells: Cells, features: NDArray[np.floating]) -> Cells:
        """Return found cells with their kinds, if the classes are kinds."""
        return cells if self.kinds is None else self.kinds.assign(cells, features)

    def counted(self, cells: Cells, core: Box, counted: NDArray[np.bool_]) -> Cells:
        """Return the cells on the counted pixels of a core."""
        xy = np.floor(self.grid.from_level0(cells.xy)).astype(np.intp)
        xy = np.minimum(xy, (self.grid.width - 1, self.grid.height - 1))  # the far edge is the last pixel's
        inside = ((xy >= core[:2]) & (xy < core[2:])).all(axis=1)
        column, row = (xy[inside] - core[:2]).T
        return cells[inside][counted[row, column]]

    def no_cells(self) -> Cells:
        """Return an empty table."""
        return self.cells(np.empty((0, 2)), label=np.empty(0, np.int16), score=np.empty(0))


def in_reading_order(cells: Cells) -> Cells:
    """Sort by y, then x, then class: an order that does not depend on tiles."""
    return cells[np.lexsort((cells.label, cells.xy[:, 0], cells.xy[:, 1]))]
