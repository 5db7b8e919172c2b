"""Outlines of cells, from the outputs of a network that gives every pixel its class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.models.grid import foreground_probability
from sparseshot.prediction.contours import contours
from sparseshot.prediction.finder import PLACE_DECIMALS, SCORE_DECIMALS, SlideFrame, in_reading_order
from sparseshot.prediction.model import Model
from sparseshot.prediction.objects import split
from sparseshot.prediction.plan import Layout, Tissue, Window

WINDOW_PX = 4096
"""Side of what is split into objects at once: large beside its halo, small beside the memory there is."""

_BAND_WINDOWS = 4
"""A hundred thousand outlines at most, in which a shard and the memory for it are still small."""

_STEPS = 10**SCORE_DECIMALS


@dataclass(frozen=True, eq=False)
class Segmenter:
    """A :class:`~sparseshot.prediction.finder.Finder` of outlines.

    A window is its core and a halo as wide as an object may reach. An object belongs to the window whose core
    holds its peak, where it lies whole; so what is found does not depend on windows or tiles.

    Attributes:
        reach_um: an object that reaches farther than this from its peak is no cell and is left out.
        least_um2: smaller ones are left out too.
        waist_um: how much narrower, in radius, a waist must be to be a border between two cells.
        hole_um2: holes smaller than this are filled.
    """

    model: Model
    frame: SlideFrame
    tissue: Tissue
    reach_um: float = 50.0
    least_um2: float = 5.0
    waist_um: float = 0.2
    hole_um2: float = 10.0
    window_px: int = WINDOW_PX

    def layout(self, tile_px: int) -> Layout:
        """Lay a halo round each window, a little wider because heights look a pixel or two around."""
        halo = round(self.reach_um / self.frame.grid.mpp) + 16
        return Layout(tile_px, self.window_px, halo_px=halo, band_windows=_BAND_WINDOWS)

    def settings(self) -> dict[str, float]:
        """Tell what else decides the result."""
        return {
            "largest_reach_um": self.reach_um,
            "least_area_um2": self.least_um2,
            "waist_um": self.waist_um,
            "hole_um2": self.hole_um2,
        }

    def reduce(self, output: Tensor) -> tuple[Tensor, ...]:
        """Cut off the margin; take the probability of any foreground in steps of 0.0001, and the class."""
        margin = self.model.margin_px
        rows, columns = output.shape[2] - margin, output.shape[3] - margin
        logits = output[:, :, margin:rows, margin:columns]
        p = (foreground_probability(logits) * _STEPS).round_().to(torch.int16).cpu()
        if logits.shape[1] == 1:
            return (p,)
        return p, logits[:, 1:].argmax(dim=1).to(torch.uint8).cpu()

    def find(self, window: Window, parts: Sequence[tuple[Tensor, ...]]) -> Cells:
        """Put the tiles of a window together, and give the objects that belong to it."""
        grid, box, core = self.frame.grid, window.box, window.core
        p, kind = self._joined(window, parts)
        objects = split(
            p >= self.model.threshold * _STEPS,
            waist_px=max(0.4, self.waist_um / grid.mpp),  # the stairs of pixels are waists of about 0.3
            hole_px=round(self.hole_um2 / grid.mpp**2),
            cap_px=round(self.reach_um / grid.mpp),
        )
        row, column = objects.peak[:, 0] + box.y0, objects.peak[:, 1] + box.x0
        own = (row >= core.y0) & (row < core.y1) & (column >= core.x0) & (column < core.x1)
        own &= objects.reach_px * grid.mpp <= self.reach_um
        own &= objects.area_px * grid.mpp**2 >= self.least_um2
        objects = objects.chosen(own)
        total, votes = objects.tallies(p, kind, count=len(self.model.classes))
        outline = self._on_slide(contours(objects.labels, x0=box.x0, y0=box.y0))
        return self.frame.cells(
            shapely.get_coordinates(shapely.centroid(outline)),
            label=votes.argmax(axis=1),
            score=np.round(total / (objects.area_px * _STEPS), SCORE_DECIMALS),
            outline=outline,
        )

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:  # noqa: ARG002
        """Return all: a window decides about its own objects alone."""
        return in_reading_order(cells), cells[:0]

    def _joined(
        self, window: Window, parts: Sequence[tuple[Tensor, ...]]
    ) -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
        """Return probability and class of each pixel of a window; nothing is outside the grid or on glass."""
        box, grid = window.box, self.frame.grid
        p = np.zeros((box.height, box.width), np.int16)
        kind = np.zeros((box.height, box.width), np.uint8)
        for tile, part in zip(window.tiles, parts, strict=True):
            inside = tile.core.meet(box).meet(grid.box)
            target, own = inside.within(box), inside.within(tile.core)
            y, x = (
                np.arange(first, end) + 0.5 for first, end in ((inside.y0, inside.y1), (inside.x0, inside.x1))
            )
            p[target] = part[0].numpy()[own] * self.tissue.at(x, y)
            if len(part) > 1:
                kind[target] = part[1].numpy()[own]
        return p, kind

    def _on_slide(self, outline: NDArray[np.object_]) -> NDArray[np.object_]:
        """Move outlines from the grid to level 0, and what reaches over the edge back onto the slide."""
        grid, size = self.frame.grid, self.frame.size
        on_slide: NDArray[np.object_] = shapely.transform(
            outline, lambda xy: np.clip(np.round(grid.to_level0(xy), PLACE_DECIMALS), 0, size)
        )
        return on_slide
