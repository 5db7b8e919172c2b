"""Detection: the place of every cell, by a YOLLO-style network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.cells import Cells
from sparseshot.cells.suppression import KEPT, OPEN, settle
from sparseshot.images import Box, TissueMask
from sparseshot.metrics import ScoredHits, mark_scores, scored_hits
from sparseshot.models.detection_grid import decode, encode, offset_from_channels, size_from_channels
from sparseshot.models.finder import (
    PLACE_DECIMALS,
    SCORE_DECIMALS,
    Part,
    SlideFrame,
    in_reading_order,
)
from sparseshot.models.task import IGNORED, UNANNOTATED, Points, Target, target_and_annotated
from sparseshot.models.windows import Window, WindowLayout
from sparseshot.models.yollo import YOLLO, unpacked_features

MATCH_RADIUS_UM = 3.0
"""How near a detection must be to a cell to match it."""


@dataclass(frozen=True)
class Detect:
    """The place of every cell.

    Attributes:
        mark_reach: how far over its border, in grid cells, a grid cell also learns a mark; 0.5 is as far as
            its offset reaches, four grid cells a mark; 0 is one grid cell a mark, as in YOLLO.
        radius_um: of several detections within this distance the one with the highest score is kept; 0:
            :data:`MATCH_RADIUS_UM`.
        context: the network looks farther around.
    """

    name: ClassVar[str] = "detect"
    score_name: ClassVar[str] = "F1"
    paints_marks: ClassVar[bool] = False
    mirrors_edges: ClassVar[bool] = False  # a cut cell and its mirror image would be one, on the edge
    scores_whole_cells: ClassVar[bool] = True
    bytes_per_cell: ClassVar[int] = 70
    out_channels: int = 1
    width: int = 16
    stride: int = 8
    sizes: bool = False
    mark_reach: float = 0.5
    radius_um: float = 0.0
    context: bool = False
    kind_features: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def feature_stride(self) -> int:
        """Pixels to a square of the kind features."""
        return 2 * self.stride if self.context and self.stride == 4 else self.stride

    @property
    def place_channels(self) -> int:
        """Channels before those of the features."""
        return self.out_channels + 2 + 2 * self.sizes

    def network(self) -> nn.Module:
        """Return a YOLLO-style detector."""
        return YOLLO(
            out_channels=self.out_channels,
            width=self.width,
            stride=self.stride,
            sizes=self.sizes,
            context=self.context,
            kind_features=self.kind_features,
            kinds=len(self.kinds),
        )

    def logits(self, output: Tensor) -> Tensor:
        """Return the logits of the grid cells."""
        return output[:, : self.out_channels]

    def features(self, output: Tensor) -> Tensor:
        """Return the features of squares of :attr:`feature_stride` pixels."""
        packed, factor = output[:, self.place_channels :], self.feature_stride // self.stride
        return unpacked_features(packed, kind_features=self.kind_features, factor=factor)

    def place_loss(
        self,
        output: Tensor,
        target: Tensor,
        offset: Tensor | None,
        size: Tensor | None,
        height: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Smooth L1 on offsets, and on the logarithm of sizes where they are known, of annotated cells."""
        n, row, col = torch.nonzero(target > 0, as_tuple=True)
        if offset is None or not len(n):
            return output.sum() * 0
        channels = output[n, :, row, col].float()
        k = self.out_channels
        loss = F.smooth_l1_loss(
            offset_from_channels(channels[:, k : k + 2]), offset[n, :, row, col], beta=0.1
        )
        if self.sizes and size is not None:
            wanted = size[n, :, row, col]
            known = torch.isfinite(wanted) & (wanted > 0)
            guess = size_from_channels(channels[:, k + 2 : k + 4], stride=self.stride)
            if known.any():
                loss = loss + F.smooth_l1_loss(guess[known].log(), wanted[known].log(), beta=0.1)
        return loss

    def target(self, label: NDArray[np.int16], points: Points) -> Target:
        """Return the grid of the marks; regions and certain negatives are annotated background."""
        middle = slice(self.stride // 2, None, self.stride)
        ground, annotated = target_and_annotated(label[middle, middle])
        shape = (label.shape[0], label.shape[1])
        positive, negative = np.flatnonzero(points.target > 0), np.flatnonzero(points.target <= 0)
        grid, other = (
            encode(
                points.xy[chosen],
                chosen + 1,
                shape_px=shape,
                stride=self.stride,
                reach=self.mark_reach,
                size=points.size[chosen],
            )
            for chosen in (positive, negative)
        )
        # The grid holds the number of a point from 1, so 0 in front stands for none.
        target = np.concatenate([[0], points.target])[grid.label]
        target = np.where(ground == IGNORED, IGNORED, target)
        annotated = (annotated | (grid.label > 0) | (other.label > 0)) & (target != IGNORED)
        kind = None
        if points.kind is not None:
            step = self.feature_stride
            reach = self.mark_reach * self.stride / step
            kind = encode(points.xy, points.kind + 1, shape_px=shape, stride=step, reach=reach).label - 1
        return Target(target.astype(np.int64), annotated, grid.offset, grid.size, kind)

    def finder(
        self, frame: SlideFrame, tissue: TissueMask, *, threshold: float, margin_px: int
    ) -> "Detector":
        """Return the finder of places."""
        return Detector(self, frame, tissue, threshold, margin_px, self.radius_um or MATCH_RADIUS_UM)


@dataclass(frozen=True, eq=False)
class Detector:
    """A :class:`~sparseshot.models.finder.Finder` of places.

    The output of a grid cell depends on the pixels within its margin only, and each grid cell is read in the
    tile whose core holds it. So the result does not depend on the tiles.
    """

    task: Detect
    frame: SlideFrame
    tissue: TissueMask
    threshold: float
    margin_px: int
    radius_um: float = MATCH_RADIUS_UM

    def layout(self, tile_px: int) -> WindowLayout:
        """Make each tile a window: a place is in one tile or in another."""
        return WindowLayout(tile_px, window_px=tile_px)

    def settings(self) -> dict[str, float]:
        """Return everything that decides the result besides model and slide."""
        return {"suppression_radius_um": self.radius_um}

    def reduce(self, output: Tensor) -> Part:
        """Cut off the margin, and keep features in half precision."""
        margin = self.margin_px // self.task.stride
        rows, columns = output.shape[2] - margin, output.shape[3] - margin
        own = output[:, :, margin:rows, margin:columns].cpu()
        places = self.task.place_channels
        return own[:, :places], own[:, places:].half()

    def find(self, window: Window, parts: Sequence[Part]) -> Cells:
        """Decode the cells of the tiles of a window, on tissue only and before any suppression."""
        return self.frame.with_kinds(*self.find_with_features(window, parts))

    def find_with_features(self, window: Window, parts: Sequence[Part]) -> tuple[Cells, NDArray[np.float32]]:
        """Decode the cells; a cell has the features of the grid cell that found it."""
        tiles = [
            self._decoded(tile.core.meet(self.frame.grid.box), *part)
            for tile, part in zip(window.tiles, parts, strict=True)
        ]
        none = np.empty((0, self.task.kind_features), np.float32)
        return (
            Cells.concatenate([self.frame.no_cells(), *(cells for cells, _ in tiles)]),
            np.concatenate([none, *(features for _, features in tiles)]),
        )

    def _decoded(self, core: Box, output: Tensor, features: Tensor) -> tuple[Cells, NDArray[np.float32]]:
        stride, channels, grid = self.task.stride, self.task.out_channels, self.frame.grid
        output = output[:, : -(-core.height // stride), : -(-core.width // stride)].clone()
        column, row = (np.arange(size) + 0.5 for size in (output.shape[2], output.shape[1]))
        tissue = self.tissue.at(core.x0 + stride * column, core.y0 + stride * row, grid)
        # Glass is background for certain, whether it has no logit of its own or the first.
        output[0, ~tissue] = -math.inf if channels == 1 else math.inf
        found = decode(
            output, out_channels=channels, stride=stride, threshold=self.threshold - 10**-SCORE_DECIMALS
        )
        # Rounded first, and then compared: what is written is what was decided on.
        score = np.round(found.score.astype(np.float64), SCORE_DECIMALS)
        kept = score >= self.threshold
        sizes = None if found.size is None else np.round(found.size[kept] * grid.mpp, PLACE_DECIMALS)
        cells = self.frame.cells(
            grid.to_level0(found.xy[kept] + (core.x0, core.y0)),
            label=found.label[kept] - 1,
            score=score[kept],
            measurements={} if sizes is None else {"Width µm": sizes[:, 0], "Height µm": sizes[:, 1]},
        )
        row, column = found.place[kept].T // (self.task.feature_stride // stride)
        known = unpacked_features(
            features[None], kind_features=self.task.kind_features, factor=self.task.feature_stride // stride
        )
        return cells, known[0].numpy()[:, row, column].T.astype(np.float32)

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:
        """Suppress; return the cells that are certain to stay, and those that the next band decides."""
        # An offset reaches half a grid cell over the border of a tile.
        edge_y = (next_y0 - self.task.stride / 2) * self.frame.grid.downsample - 10**-PLACE_DECIMALS
        cells = in_reading_order(cells)
        assert cells.score is not None
        state = settle(cells.xy, cells.score, radius=self.radius_um / self.frame.mpp, edge_y=edge_y)
        return cells[state == KEPT], cells[state == OPEN]

    def hits(
        self, window: Window, parts: Sequence[Part], truth: Cells, counted: NDArray[np.bool_]
    ) -> ScoredHits:
        """Score the detections, from the lowest threshold up, against the places of the cells."""
        # Suppression starts at the highest score, so a threshold may be applied before or after it.
        found = self._where(window, parts, counted)
        assert found.score is not None
        return scored_hits(truth.xy, found.xy, found.score, radius=MATCH_RADIUS_UM / self.frame.mpp)

    def area_counts(
        self,
        window: Window,
        parts: Sequence[Part],
        truth: Cells,
        counted: NDArray[np.bool_],
        *,
        threshold: float,
    ) -> None:
        """Return None: detections are points."""

    def mark_scores(
        self, window: Window, parts: Sequence[Part], label: NDArray[np.int16], xy: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return the highest score near each mark, and the scores of all detections."""
        found = self._where(window, parts, label > IGNORED)
        assert found.score is not None
        radius = MATCH_RADIUS_UM / self.frame.mpp
        return mark_scores(self.frame.grid.to_level0(xy), found.xy, found.score, radius=radius), found.score

    def confident(self, window: Window, parts: Sequence[Part], label: NDArray[np.int16]) -> Cells:
        """Return the detections in unannotated places."""
        return self._where(window, parts, label == UNANNOTATED)

    def _where(self, window: Window, parts: Sequence[Part], counted: NDArray[np.bool_]) -> Cells:
        """Return the detections on the counted pixels of the window's core."""
        found, _ = self.settle(self.find(window, parts), next_y0=math.inf)
        return self.frame.counted(found, window.core, counted)
