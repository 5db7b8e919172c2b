"""A network over windows of a slide: the one way from pixels to cells."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.cells import Cells
from sparseshot.images import Box, Grid, Slide, Tile, TileGrid, TissueMask
from sparseshot.images.tiles import read_undamaged, work_ahead
from sparseshot.models.finder import Finder, Part, SlideFrame
from sparseshot.models.task import Task
from sparseshot.models.windows import Window, even_px, window_over
from sparseshot.work import Event, Report, ignore

# Optical density of pure haematoxylin, eosin and DAB in red, green and blue (Ruifrok & Johnston 2001).
_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
_UNMIX = np.linalg.inv(_STAINS)


def network_input(image: Tensor) -> Tensor:
    """Map uint8 ``(N, 3, H, W)`` to float32 about zero.

    >>> network_input(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
    tensor([1., 1., 1.])
    """
    return image.float().mul_(2 / 255).sub_(1)


def draw_stain_jitter(random: np.random.Generator, *, strength: float) -> NDArray[np.float32]:
    """Draw a 3 × 4 map of optical densities that scales each stain, and the light a little.

    The first three columns mix the channels, the last shifts them. Strength 0 is the identity.
    """
    scale = 1 + strength * random.uniform(-1, 1, 3)
    shift = 0.25 * strength * random.uniform(-1, 1, 3)
    mix = (_UNMIX @ np.diag(scale) @ _STAINS).T
    return np.concatenate([mix, shift[:, None]], axis=1).astype(np.float32)


def jittered_network_input(image: Tensor, jitter: Tensor) -> Tensor:
    """Change the stain of each image, then apply :func:`network_input`.

    Args:
        image: uint8 ``(N, 3, H, W)``.
        jitter: ``(N, 3, 4)``, one map of :func:`draw_stain_jitter` for each image.
    """
    density = image.float().add_(1).mul_(1 / 256).log_().neg_()
    mixed = torch.einsum("nij,njhw->nihw", jitter[:, :, :3], density) + jitter[:, :, 3, None, None]
    light = mixed.neg_().exp_().clamp_(max=1)
    return light.mul_(2).sub_(1).contiguous(memory_format=torch.channels_last)


TILE_PX = 1536
"""Default side of a tile: a margin of 48 pixels adds an eighth to its area."""

CONTEXT_PX = 16
"""Pixels around a box in which detections are suppressed together with those inside."""

PIECE_PX = 64
"""Damage is located in squares of this side."""

_ROW = "row"
_Pixels = NDArray[np.uint8]


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
class WindowOutputs:
    """The outputs of a network over a window of a slide.

    Attributes:
        frame: of the slide.
        finder: turns the outputs into cells or scores.
        window: the box, its surroundings, and its tiles.
        parts: reduced outputs of the tiles.
        pixels: of the tiles, margins included.
        broken: places of the window's core that could not be read, and the reasons.
    """

    frame: SlideFrame
    finder: Finder
    window: Window
    parts: Sequence[Part]
    pixels: Sequence[_Pixels] = ()
    broken: dict[Box, str] = field(default_factory=dict)

    @property
    def cells(self) -> Cells:
        """The cells of the core, in level-0 pixels."""
        return self.frame.with_kinds(*self.cells_and_features)

    @property
    def cells_and_features(self) -> tuple[Cells, NDArray[np.float32]]:
        """The cells of the core, and the features for the kind of each, ``(N, kind_features)``."""
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


def window_outputs(
    run: Callable[[_Pixels], Tensor],
    slide: Slide,
    frame: SlideFrame,
    finder: Finder,
    bands: Sequence[Sequence[Window]],
    *,
    batch: int = 1,
    readers: int = 0,
    streams: int = 0,
    whitens_damage: bool = False,
) -> Generator[WindowOutputs, None, None]:
    """Run a network over windows, from the first to the last.

    Args:
        run: maps images ``(N, H, W, 3)`` to outputs.
        slide: to read.
        frame: of the slide.
        finder: of the outputs.
        bands: rows of windows; a batch never holds tiles of two, so that it is the same after a resume.
        batch: tiles per forward pass.
        readers: threads that read ahead, two tiles each; 0 for none.
        streams: threads that call ``run``; 0 for none.
        whitens_damage: takes what cannot be read for glass; otherwise it is an error.
    """

    def read(tile: Tile) -> tuple[_Pixels, dict[Box, str]]:
        grid, box, broken = frame.grid, tile.padded, dict[Box, str]()
        if whitens_damage:
            pixels, broken = read_undamaged(slide, grid, box, piece_px=PIECE_PX)
        else:
            pixels = slide.read(grid, box)
        return mirrored(pixels, box, grid) if finder.task.mirrors_edges else pixels, broken

    def compute(tiles: list[tuple[_Pixels, dict[Box, str]]]) -> list[tuple[Part, _Pixels, dict[Box, str]]]:
        parts = finder.reduce(run(np.stack([pixels for pixels, _ in tiles])))
        return [(tuple(part[k] for part in parts), *each) for k, each in enumerate(tiles)]

    tiles = [tile for band in bands for window in band for tile in window.tiles]
    counts = [sum(len(window.tiles) for window in band) for band in bands]
    sizes = (min(batch, count - start) for count in counts for start in range(0, count, batch))
    with (
        closing(work_ahead(read, tiles, threads=readers, ahead=2 * readers + batch)) as images,
        closing(
            work_ahead(
                compute, (list(islice(images, size)) for size in sizes), threads=streams, ahead=streams
            )
        ) as batches,
    ):
        computed = chain.from_iterable(batches)
        for window in chain.from_iterable(bands):
            tiles_of = list(islice(computed, len(window.tiles)))
            parts, pixels, broken = zip(*tiles_of, strict=True) if tiles_of else ((), (), ())
            cores = [tile.core.meet(window.core) for tile in window.tiles]
            own = [_own(holes, core) for holes, core in zip(broken, cores, strict=True)]
            places = {place: reason for holes in own for place, reason in holes.items()}
            yield WindowOutputs(frame, finder, window, parts, pixels, places)


def mirrored(pixels: _Pixels, box: Box, grid: Grid) -> _Pixels:
    """Continue an image beyond its edges by its mirror image: networks learn from crops inside of images.

    White there costs 0.01 of Dice on images of 256 pixels.

    Args:
        pixels: of the box.
        box: in pixels of the grid.
        grid: of the image.
    """
    inside = box.meet(grid.box)
    if inside == box or not (inside.width and inside.height):
        return pixels
    beyond = (inside.y0 - box.y0, box.y1 - inside.y1), (inside.x0 - box.x0, box.x1 - inside.x1), (0, 0)
    return np.pad(pixels[inside.within(box)], beyond, mode="symmetric")


def _own(broken: dict[Box, str], core: Box) -> dict[Box, str]:
    """Return broken places cut to the core: each is in one core, but in the margin of several tiles."""
    own = {place.meet(core): reason for place, reason in broken.items()}
    return {place: reason for place, reason in own.items() if place.width and place.height}


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
) -> WindowOutputs:
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
    return next(window_outputs(partial(forward, network), slide, frame, finder, [[window]]))


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
        pixels = slide.read(grid, padded)
        if task.mirrors_edges:
            pixels = mirrored(pixels, padded, grid)
        output = task.features(forward(network, pixels[None]))[0].cpu().numpy()
        column, row = ((places[own] - padded[:2]) // (padded.width // output.shape[2])).T
        features[own] = output[:, row, column].T
    report(Event("looking at cells", len(chosen), len(chosen)))
    return features
