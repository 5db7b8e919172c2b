"""Measurements of found cells: shape and stains, while their pixels are in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.shape_measures import shape_measurements
from sparseshot.cells.stains import STAINS, Stains, stain_measurements
from sparseshot.errors import SlideError
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import TileGrid
from sparseshot.images.tissue import TissueMask
from sparseshot.models.windows import Window

Level = Literal["none", "basic", "all"]

_SAMPLES, _SAMPLE_PX = 25, 256
"""Number and side of the squares of tissue from which stains are estimated."""


@dataclass(frozen=True)
class Measuring:
    """What is measured of each cell.

    Attributes:
        level: nothing; shape and stains; or also the neighbours.
        stains: the stains of the slide.
        estimated: adapt the vectors of the stains to each slide.
    """

    level: Level = "all"
    stains: Stains = field(default_factory=lambda: STAINS["he"])
    estimated: bool = False

    def on(self, slide: Slide, grid: Grid, tissue: TissueMask) -> Self:
        """Return what is measured on a slide, with estimated stains if requested."""
        if self.level == "none" or not self.estimated:
            return self
        return replace(self, stains=self.stains.estimated(_sampled(slide, grid, tissue)))

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the result, as JSON holds it."""
        if self.level == "none":
            return {"level": self.level}
        stains = dict(zip(self.stains.names, map(list, self.stains.vectors), strict=True))
        return {"level": self.level, "stains": stains, "estimated": self.estimated}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return what :meth:`settings` tells."""
        if settings["level"] == "none":
            return cls("none")
        (one, first), (other, second) = settings["stains"].items()
        stains = Stains((one, other), (tuple(first), tuple(second)))
        return cls(settings["level"], stains, settings["estimated"])

    def measured(self, cells: Cells, window: Window, tiles: Sequence[NDArray[np.uint8]], grid: Grid) -> Cells:
        """Return the cells of a window with shape and stains.

        Args:
            cells: found in the window, in level-0 pixels.
            window: the window.
            tiles: pixels of its tiles, margins included.
            grid: of the pixels.
        """
        if self.level == "none":
            return cells
        pixels, box = _joined(window, tiles)
        slide_mpp = grid.mpp / grid.downsample
        shape = {} if cells.outline is None else shape_measurements(cells.outline, slide_mpp)
        stains = stain_measurements(
            cells, pixels, self.stains, mpp=grid.mpp, scale=1 / grid.downsample, origin=box[:2]
        )
        return replace(cells, measurements={**cells.measurements, **shape, **stains})


DEFAULT_MEASURING = Measuring()


def _joined(window: Window, tiles: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], Box]:
    """Return the pixels of a window with the margins of its tiles, white where nothing was read."""
    padded = [tile.padded for tile in window.tiles]
    if len(padded) == 1:
        return tiles[0], padded[0]
    starts, ends = np.min([box[:2] for box in padded], axis=0), np.max([box[2:] for box in padded], axis=0)
    whole = Box(*starts.tolist(), *ends.tolist())
    pixels = np.full((whole.height, whole.width, 3), 255, np.uint8)
    for box, tile in zip(padded, tiles, strict=True):
        pixels[box.within(whole)] = tile
    return pixels, whole


def _sampled(slide: Slide, grid: Grid, tissue: TissueMask) -> NDArray[np.uint8]:
    """Read squares of tissue, evenly spread in reading order; places that cannot be read are left out."""
    squares = TileGrid(grid.width, grid.height, _SAMPLE_PX, 0)
    wanted = tissue.touching(squares, grid)
    chosen = np.unique(np.linspace(0, max(0, len(wanted) - 1), _SAMPLES).round().astype(np.intp))
    pixels = [np.empty((0, 3), np.uint8)]
    for index in wanted[chosen[: len(wanted)]]:
        try:
            pixels.append(slide.read(grid, squares[index].core.meet(grid.box)).reshape(-1, 3))
        except SlideError:
            continue
    return np.concatenate(pixels)
