"""Measurements of found cells: shape and stains, while their pixels are in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.shape_measures import shape_measurements
from sparseshot.cells.stains import STAINS, Stains, stain_measurements
from sparseshot.errors import InputError, SlideError
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import TileGrid
from sparseshot.images.tissue import TissueMask
from sparseshot.models.finder import SlideFrame
from sparseshot.models.windows import Window

Level = Literal["none", "basic", "all"]

POSITIVE, NEGATIVE = "Positive", "Negative"
_QUPATH_COLORS = [(112, 112, 225), (250, 62, 62)]

_SAMPLES, _SAMPLE_PX = 25, 256
"""Number and side of the squares of tissue from which stains are estimated."""


@dataclass(frozen=True)
class Measuring:
    """What is measured of each cell.

    Attributes:
        level: nothing; shape and stains; or also the neighbours.
        stains: the stains of the slide.
        estimated: adapt the vectors of the stains to each slide.
        positive_od: mean optical density of the second stain from which on a cell is positive; None: cells
            are not scored.
    """

    level: Level = "all"
    stains: Stains = field(default_factory=lambda: STAINS["he"])
    estimated: bool = False
    positive_od: float | None = None

    def __post_init__(self) -> None:
        if self.positive_od is None:
            return
        if self.level == "none":
            raise InputError("whether a cell is positive is measured; leave out --measure none")
        if "DAB" not in self.stains.names:
            raise InputError("--positive scores DAB; give --stains hdab")

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
        scored = {} if self.positive_od is None else {"positive_od": self.positive_od}
        return {"level": self.level, "stains": stains, "estimated": self.estimated} | scored

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return what :meth:`settings` tells."""
        if settings["level"] == "none":
            return cls("none")
        (one, first), (other, second) = settings["stains"].items()
        stains = Stains((one, other), (tuple(first), tuple(second)))
        return cls(settings["level"], stains, settings["estimated"], settings.get("positive_od"))

    def shown(self, frame: SlideFrame) -> SlideFrame:
        """Return the frame of a result, in which each class is in two if cells are scored.

        They are named as QuPath names them: ``Negative`` and ``Positive``, or ``Tumour: Negative``.
        """
        if self.positive_od is None:
            return frame
        from sparseshot.models.kinds import is_any_cell  # noqa: PLC0415  of DAB only

        names, colors = [], []
        for name, color in zip(frame.classes, frame.colors, strict=True):
            plain = is_any_cell(name)
            names += [state if plain else f"{name}: {state}" for state in (NEGATIVE, POSITIVE)]
            red, green, blue = ((255 + part) // 2 for part in color)
            colors += _QUPATH_COLORS if plain else [(red, green, blue), color]
        return replace(frame, classes=tuple(names), colors=tuple(colors))

    def scored(self, cells: Cells, frame: SlideFrame) -> Cells:
        """Return the cells of a result, positive or negative if they are scored.

        Args:
            cells: measured, with their kinds.
            frame: of :meth:`shown`.
        """
        if self.positive_od is None:
            return replace(cells, colors=frame.colors)
        ending = f"{self.stains.names[1]} OD mean"
        columns = [column for name, column in cells.measurements.items() if name.endswith(ending)]
        density = columns[0] if columns else np.empty(0, np.float32)  # a table without cells may have none
        positive = density >= np.float32(self.positive_od)
        label = np.where(cells.label < 0, -1, 2 * cells.label + positive).astype(np.int16)
        return replace(cells, classes=frame.classes, label=label, colors=frame.colors)

    def positive(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """Return how many cells are positive, as a summary holds it; empty if they are not scored."""
        if self.positive_od is None:
            return {}
        numbers = list(counts.values())  # of each class negative, then positive
        names = [name.removesuffix(NEGATIVE).removesuffix(": ") for name in list(counts)[::2]]
        shares = {
            name: _share(p, n + p) for name, n, p in zip(names, numbers[::2], numbers[1::2], strict=True)
        }
        criterion = f"mean {self.stains.names[1]} optical density of at least {self.positive_od:g}"
        of_kinds = {name: share for name, share in shares.items() if name}
        return {"criterion": criterion, **_share(sum(numbers[1::2]), sum(numbers)), "classes": of_kinds}

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


def _share(positive: int, cells: int) -> dict[str, Any]:
    percent = round(100 * positive / cells, 2) if cells else None
    return {"positive": positive, "cells": cells, "percent": percent}


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
