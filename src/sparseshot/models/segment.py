"""Segmentation: the outline of every cell, by a U-Net."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import shapely
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor, nn

from sparseshot.cells import Cells, trace
from sparseshot.cells.trace import smooth_outlines
from sparseshot.images import TissueMask
from sparseshot.metrics import AreaCounts, ScoredHits, area_counts, overlaps_of_outlines
from sparseshot.models.detection_grid import encode, foreground_probability
from sparseshot.models.finder import PLACE_DECIMALS, SCORE_DECIMALS, Part, SlideFrame, in_reading_order
from sparseshot.models.instances import TOP, mask_heights, split
from sparseshot.models.task import IGNORED, UNANNOTATED, Points, Target, target_and_annotated
from sparseshot.models.unet import UNet
from sparseshot.models.windows import Window, WindowLayout
from sparseshot.models.yollo import unpacked_features

WINDOW_PX = 4096
"""Side of what is split into cells at once: large compared with its halo, small compared with memory."""

_BAND_WINDOWS = 4
"""A shard holds at most about a hundred thousand outlines."""

_STEPS = 10**SCORE_DECIMALS

_SMOOTHING_PX = 1.0
_NEARBY_UM = 3.0
"""Without heights, a waist separates cells if it is narrower than the parts this near to it."""


@dataclass(frozen=True)
class Segment:
    """The class of every pixel."""

    name: ClassVar[str] = "segment"
    score_name: ClassVar[str] = "Dice"
    paints_marks: ClassVar[bool] = True
    mirrors_edges: ClassVar[bool] = True
    scores_whole_cells: ClassVar[bool] = False
    bytes_per_cell: ClassVar[int] = 600  # an outline has about twenty vertices
    stride: ClassVar[int] = 1
    out_channels: int = 1
    width: int = 16
    depth: int = 3
    mark_radius_um: float = 3.0
    heights: bool = False
    kind_features: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def feature_stride(self) -> int:
        """Pixels to a set of features, in x and y."""
        return 1 << self.depth

    def network(self) -> nn.Module:
        """Return a U-Net."""
        return UNet(
            out_channels=self.out_channels,
            width=self.width,
            depth=self.depth,
            heights=self.heights,
            kind_features=self.kind_features,
            kinds=len(self.kinds),
        )

    def logits(self, output: Tensor) -> Tensor:
        """Return the logits of the pixels."""
        return output[:, : self.out_channels]

    def features(self, output: Tensor) -> Tensor:
        """Return the features of squares of :attr:`feature_stride` pixels."""
        first = self.out_channels + self.heights
        return unpacked_features(
            output[:, first:], kind_features=self.kind_features, factor=self.feature_stride
        )

    def place_loss(
        self,
        output: Tensor,
        target: Tensor,
        offset: Tensor | None,  # noqa: ARG002
        size: Tensor | None,  # noqa: ARG002
        height: Tensor | None,
    ) -> Tensor:
        """Cross-entropy of the heights inside marked outlines; nothing is asked of other pixels."""
        if not self.heights or height is None:
            return output.new_zeros(())
        known = (height > 0) & (target > 0)
        if not known.any():
            return output.sum() * 0
        logit = output[:, self.out_channels][known].float()
        return F.binary_cross_entropy_with_logits(logit, height[known].float() / 255)

    def target(self, label: NDArray[np.int16], points: Points) -> Target:
        """Return the label map as a target; a kind stands in the square of its mark."""
        kind = None
        if points.kind is not None:
            shape = (label.shape[0], label.shape[1])
            kind = encode(points.xy, points.kind + 1, shape_px=shape, stride=self.feature_stride).label - 1
        return Target(*target_and_annotated(label), kind=kind)

    def finder(
        self, frame: SlideFrame, tissue: TissueMask, *, threshold: float, margin_px: int
    ) -> "Segmenter":
        """Return the finder of outlines."""
        return Segmenter(self, frame, tissue, threshold, margin_px, mark_radius_um=self.mark_radius_um)


@dataclass(frozen=True, eq=False)
class Segmenter:
    """A :class:`~sparseshot.models.finder.Finder` of outlines.

    A window is its core and a halo as wide as a cell may extend. A cell belongs to the window whose core
    holds the middle of its bounding box, where it lies whole; so the result does not depend on windows or
    tiles.

    Attributes:
        reach_um: objects that extend farther than this from their middle are left out.
        least_um2: smaller ones are left out too, and smaller holes are filled.
        mark_radius_um: radius of the disc that stands for a true cell without outline.
    """

    task: Segment
    frame: SlideFrame
    tissue: TissueMask
    threshold: float
    margin_px: int
    reach_um: float = 50.0
    least_um2: float = 5.0
    window_px: int = WINDOW_PX
    mark_radius_um: float = 3.0

    def layout(self, tile_px: int) -> WindowLayout:
        """Add a halo to each window, a little wider because heights are smoothed."""
        halo = round(self.reach_um / self.frame.grid.mpp) + 16
        return WindowLayout(tile_px, self.window_px, halo_px=halo, band_windows=_BAND_WINDOWS)

    def settings(self) -> dict[str, float]:
        """Return everything that decides the result besides model and slide."""
        return {
            "largest_reach_um": self.reach_um,
            "least_area_um2": self.least_um2,
        }

    def reduce(self, output: Tensor) -> Part:
        """Cut off the margin; keep p in steps of 0.0001, in bytes the height and the class, and the features.

        The class only if there are several.
        """
        margin, task = self.margin_px, self.task
        rows, columns = output.shape[2] - margin, output.shape[3] - margin
        own = output[:, :, margin:rows, margin:columns]
        logits = task.logits(own)
        p = (foreground_probability(logits) * _STEPS).round_().to(torch.int16)
        height = own[:, task.out_channels :][:, : int(task.heights)].float().sigmoid() * 255
        several = logits.shape[1] > 1
        kind = logits[:, 1:].argmax(dim=1, keepdim=True) if several else logits[:, :0]
        rest = torch.cat([height.round_().to(torch.uint8), kind.to(torch.uint8)], dim=1)
        features = task.features(own).half() if task.kind_features else own[:, :0]
        return p.cpu(), rest.cpu(), features.cpu()

    def find(self, window: Window, parts: Sequence[Part]) -> Cells:
        """Join the tiles of a window, and return the cells that belong to it."""
        return self.frame.with_kinds(*self.find_with_features(window, parts))

    def find_with_features(self, window: Window, parts: Sequence[Part]) -> tuple[Cells, NDArray[np.float32]]:
        """Join the tiles; a cell has the features at its centroid."""
        cells = self._found(window, parts)
        features = np.zeros((len(cells), self.task.kind_features), np.float32)
        stride, grid = self.task.feature_stride, self.frame.grid
        if features.size:
            place = np.floor(grid.from_level0(cells.xy)).astype(np.intp)
            for tile, part in zip(window.tiles, parts, strict=True):
                inside = ((place >= tile.core[:2]) & (place < tile.core[2:])).all(axis=1)
                column, row = ((place[inside] - tile.core[:2]) // stride).T
                features[inside] = part[-1].numpy()[:, row, column].T
        return cells, features

    def outlines_around(
        self, window: Window, parts: Sequence[Part], xy: NDArray[np.float64]
    ) -> NDArray[np.object_]:
        """Return the outlines of the cells that are known to be at given places, and None where none is seen.

        Args:
            window: that holds them.
            parts: its outputs.
            xy: ``(N, 2)`` places, in level-0 pixels.
        """
        grid, box = self.frame.grid, window.box
        p, rest = self._joined(window, parts)
        mask = p >= self.threshold * _STEPS
        seeds = grid.rasterise(Cells(xy), box, by="instance", radius_px=1.0)
        labels = split(mask, self._height(mask, rest), seeds)
        values, _, traced = trace(labels)
        large = shapely.area(traced) * grid.mpp**2 >= self.least_um2
        outlines: NDArray[np.object_] = np.full(len(xy), None, object)
        traced = shapely.transform(traced[large], lambda each: each + box[:2])
        outlines[values[large] - 1] = self._on_slide(traced)
        return outlines

    def _height(self, mask: NDArray[np.bool_], rest: NDArray[np.uint8]) -> NDArray[np.uint16]:
        if not self.task.heights:
            return mask_heights(mask, reach_px=_NEARBY_UM / self.frame.grid.mpp)
        smooth: NDArray[np.float32] = ndimage.gaussian_filter(
            rest[0], _SMOOTHING_PX, truncate=2, output=np.float32
        )
        return (smooth * np.float32(TOP / 255)).astype(np.uint16)

    def _found(self, window: Window, parts: Sequence[Part]) -> Cells:
        grid, box, core = self.frame.grid, window.box, window.core
        p, rest = self._joined(window, parts)
        mask = p >= self.threshold * _STEPS
        labels = split(mask, self._height(mask, rest))
        outline = smooth_outlines(labels, hole_px=self.least_um2 / grid.mpp**2)
        bounds = shapely.bounds(outline).reshape(-1, 4) + box[:2] * 2
        middle, extent = (bounds[:, 2:] + bounds[:, :2]) / 2, bounds[:, 2:] - bounds[:, :2]
        own = ((middle >= core[:2]) & (middle < core[2:])).all(axis=1)
        own &= extent.max(axis=1) * grid.mpp <= 2 * self.reach_um
        own &= shapely.area(outline) * grid.mpp**2 >= self.least_um2
        inside, classes = labels[mask] - 1, len(self.frame.classes)
        total = np.bincount(inside, p[mask], len(own)) / np.bincount(inside, minlength=len(own))
        label = np.zeros(len(own), np.intp)
        if classes > 1:
            votes = np.bincount(inside * classes + rest[-1][mask], minlength=len(own) * classes)
            label = votes.reshape(-1, classes).argmax(axis=1)
        outline = self._on_slide(shapely.transform(outline[own], lambda xy: xy + box[:2]))
        return self.frame.cells(
            shapely.get_coordinates(shapely.centroid(outline)),
            label=label[own],
            score=np.round(total[own] / _STEPS, SCORE_DECIMALS),
            outline=outline,
        )

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:  # noqa: ARG002
        """Return all: a window decides about its own cells alone."""
        return in_reading_order(cells), cells[:0]

    def hits(
        self, window: Window, parts: Sequence[Part], truth: Cells, counted: NDArray[np.bool_]
    ) -> ScoredHits:
        """Score each pixel; it is a hit inside a true cell."""
        grid = self.frame.grid
        radius_px = self.mark_radius_um / grid.mpp
        inside = grid.rasterise(truth, window.core, by="instance", radius_px=radius_px)[counted] > 0
        return ScoredHits(self._probability(window, parts)[counted], inside, int(inside.sum()))

    def area_counts(
        self,
        window: Window,
        parts: Sequence[Part],
        truth: Cells,
        counted: NDArray[np.bool_],
        *,
        threshold: float,
    ) -> AreaCounts | None:
        """Compare the outlines found at a threshold with the true ones; None if a true cell has none."""
        if len(truth) and (truth.outline is None or shapely.is_missing(truth.outline).any()):
            return None
        found = replace(self, threshold=threshold).find(window, parts)
        return area_counts(overlaps_of_outlines(truth, self.frame.counted(found, window.core, counted)))

    def mark_scores(
        self,
        window: Window,
        parts: Sequence[Part],
        label: NDArray[np.int16],
        xy: NDArray[np.float64],  # noqa: ARG002
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the probability of the marked pixels, and that of all."""
        p = self._probability(window, parts)
        return p[label > 0], p[label > IGNORED]

    def confident(self, window: Window, parts: Sequence[Part], label: NDArray[np.int16]) -> Cells:
        """Return the connected unannotated pixels of one class above the threshold."""
        core = window.core.within(window.box)
        p, rest = (each[..., core[0], core[1]] for each in self._joined(window, parts))
        kind = rest[-1] if len(self.frame.classes) > 1 else np.zeros(p.shape, np.uint8)
        confident = (p > self.threshold * _STEPS) & (label == UNANNOTATED)
        found = []
        for index in range(len(self.frame.classes)):
            pieces, _ = ndimage.label(confident & (kind == index))
            _, _, outline = trace(pieces)
            outline = self._on_slide(shapely.transform(outline, lambda xy: xy + window.core[:2]))
            xy = shapely.get_coordinates(shapely.centroid(outline))
            found.append(
                self.frame.cells(xy, label=np.full(len(xy), index), score=np.ones(len(xy)), outline=outline)
            )
        return Cells.concatenate(found)

    def _probability(self, window: Window, parts: Sequence[Part]) -> NDArray[np.float32]:
        p, _ = self._joined(window, parts)
        return p[window.core.within(window.box)].astype(np.float32) / np.float32(_STEPS)

    def _joined(self, window: Window, parts: Sequence[Part]) -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
        """Return probability, and height and class, of a window's pixels; 0 outside the grid and on glass."""
        box, grid = window.box, self.frame.grid
        p = np.zeros((box.height, box.width), np.int16)
        rest = np.zeros((self.task.heights + (self.task.out_channels > 1), *p.shape), np.uint8)
        for tile, part in zip(window.tiles, parts, strict=True):
            inside = tile.core.meet(box).meet(grid.box)
            place, own = inside.within(box), inside.within(tile.core)
            x, y = np.arange(inside.x0, inside.x1) + 0.5, np.arange(inside.y0, inside.y1) + 0.5
            p[place] = part[0].numpy()[own] * self.tissue.at(x, y, grid)
            rest[:, place[0], place[1]] = part[1].numpy()[:, own[0], own[1]]
        return p, rest

    def _on_slide(self, outline: NDArray[np.object_]) -> NDArray[np.object_]:
        """Convert outlines from the grid to level 0, clipped to the slide."""
        on_slide: NDArray[np.object_] = shapely.transform(
            outline,
            lambda xy: np.clip(np.round(self.frame.grid.to_level0(xy), PLACE_DECIMALS), 0, self.frame.size),
        )
        return on_slide
