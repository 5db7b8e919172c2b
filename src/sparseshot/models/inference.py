"""A network over a region of a slide: the one way from pixels to cells."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.cells import Cells
from sparseshot.images import Box, Slide, TileGrid, TissueMask
from sparseshot.models.color import network_input
from sparseshot.models.finder import Finder, Part, SlideFrame
from sparseshot.models.task import Task
from sparseshot.models.windows import Window, even_px, window_over
from sparseshot.work import Event, Report, ignore

TILE_PX = 1536
"""Default side of a tile: a margin of 48 pixels adds an eighth to its area."""

CONTEXT_PX = 16
"""Pixels around a box in which detections are suppressed together with those inside."""

_ROW = "row"


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Switch a network to evaluation for the block, and back to the mode it was in."""
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train(was_training)


def forward(network: nn.Module, images: NDArray[np.uint8], *, bfloat16: bool = False) -> Tensor:
    """Map images ``(N, H, W, 3)`` to float32 outputs ``(N, channels, rows, cols)`` on the same device."""
    device = next(network.parameters()).device
    # Seen as (N, 3, H, W), bytes in the order of (N, H, W, 3) are what PyTorch calls channels_last.
    batch = torch.from_numpy(images).to(device, non_blocking=True).permute(0, 3, 1, 2)
    with evaluating(network), torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
        output: Tensor = network(network_input(batch)).float()
    return output


@dataclass(frozen=True, eq=False)
class Region:
    """The outputs of a network over a box of a slide.

    Attributes:
        frame: of the slide.
        finder: turns the outputs into cells or scores.
        window: the box, its surroundings, and its tiles.
        parts: reduced outputs of the tiles.
    """

    frame: SlideFrame
    finder: Finder
    window: Window
    parts: Sequence[Part]

    @property
    def cells(self) -> Cells:
        """The cells of the box, in level-0 pixels."""
        return self.frame.with_kinds(*self.cells_and_features)

    @property
    def cells_and_features(self) -> tuple[Cells, NDArray[np.float32]]:
        """The cells of the box, and the features for the kind of each, ``(N, kind_features)``."""
        found, features = self.finder.find_with_features(self.window, self.parts)
        # Suppression and order choose rows, so each row carries its number.
        numbered = replace(
            found, measurements={**found.measurements, _ROW: np.arange(len(found), dtype=float)}
        )
        settled, _ = self.finder.settle(numbered, next_y0=float("inf"))
        low, high = self.frame.grid.to_level0(self.window.core).reshape(2, 2)
        settled = settled[((settled.xy >= low) & (settled.xy <= high)).all(axis=1)]
        measurements = dict(settled.measurements)
        row = measurements.pop(_ROW).astype(np.intp)
        return replace(settled, measurements=measurements), features[row]


def look_at(
    network: nn.Module,
    task: Task,
    slide: Slide,
    frame: SlideFrame,
    *,
    threshold: float,
    box: Box | None = None,
    halo_px: int | None = None,
    tissue: TissueMask | None = None,
) -> Region:
    """Run a network over a box of a slide.

    Args:
        network: with ``margin_px``, how far an output looks, and ``alignment_px``, where tiles may begin;
            one without runs over the box as one tile.
        task: of the network.
        slide: to read.
        frame: of the slide, at the resolution of the network.
        threshold: probability at which something is a cell.
        box: in pixels of the frame's grid; None for all of it.
        halo_px: how far around the box to look; None: as far as a cell may extend, or suppression reach.
        tissue: mask of the slide; None: tissue everywhere.
    """
    margin = int(getattr(network, "margin_px", 0))
    tissue = tissue or TissueMask.everywhere(slide)
    finder = task.finder(frame, tissue, threshold=threshold, margin_px=margin)
    box = box or frame.grid.box
    alignment = int(getattr(network, "alignment_px", task.stride))
    layout = finder.layout(TILE_PX if margin else max(frame.grid.width, frame.grid.height) + alignment)
    layout = replace(layout, halo_px=(layout.halo_px or CONTEXT_PX) if halo_px is None else halo_px)
    window = window_over(box, frame.grid, tissue, layout, margin_px=margin, alignment_px=alignment)
    parts = []
    for tile in window.tiles:
        output = forward(network, slide.read(frame.grid, tile.padded)[None])
        parts.append(tuple(each[0] for each in finder.reduce(output)))
    return Region(frame, finder, window, parts)


def features_at(
    network: nn.Module,
    task: Task,
    slide: Slide,
    frame: SlideFrame,
    xy: NDArray[np.float64],
    *,
    report: Report = ignore,
) -> NDArray[np.float32]:
    """Return the features for the kind at given places, ``(N, kind_features)``.

    Tiles are read one after the other, and only those that hold a place.

    Args:
        network: as for :func:`look_at`.
        task: of the network.
        slide: to read.
        frame: of the slide, at the resolution of the network.
        xy: ``(N, 2)`` places on the slide, in level-0 pixels.
        report: receives an event for each tile.
    """
    grid, margin = frame.grid, int(getattr(network, "margin_px", 0))
    alignment, longest = int(getattr(network, "alignment_px", task.stride)), max(grid.width, grid.height)
    tile_px = even_px(longest, TILE_PX if margin else longest + alignment, alignment)
    tiles = TileGrid(grid.width, grid.height, tile_px, margin)
    # The far edge of the slide belongs to the last pixel.
    places = np.minimum(grid.from_level0(xy).astype(np.intp), (grid.width - 1, grid.height - 1))
    tile_of = places // tile_px @ (1, tiles.columns)
    features = np.empty((len(xy), task.kind_features), np.float32)
    chosen = np.unique(tile_of)
    for done, index in enumerate(chosen):
        report(Event("looking at cells", done, len(chosen)))
        own, padded = tile_of == index, tiles[index].padded
        output = task.features(forward(network, slide.read(grid, padded)[None]))[0].cpu().numpy()
        column, row = ((places[own] - padded[:2]) // (padded.width // output.shape[2])).T
        features[own] = output[:, row, column].T
    report(Event("looking at cells", len(chosen), len(chosen)))
    return features
