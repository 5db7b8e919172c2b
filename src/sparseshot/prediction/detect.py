"""Places of cells, from the outputs of a detector."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.models.grid import decode
from sparseshot.prediction.finder import PLACE_DECIMALS, SCORE_DECIMALS, SlideFrame, in_reading_order
from sparseshot.prediction.model import Model
from sparseshot.prediction.plan import Layout, Tissue, Window
from sparseshot.prediction.seams import KEPT, OPEN, settle
from sparseshot.training.held_out import MATCH_RADIUS_UM


@dataclass(frozen=True, eq=False)
class Detector:
    """A :class:`~sparseshot.prediction.finder.Finder` of places.

    What a grid cell of the network says depends on the pixels within its margin only, and each grid cell is
    read off once, in the tile whose core holds it. So what is found does not depend on the tiles.
    """

    model: Model
    frame: SlideFrame
    tissue: Tissue
    radius_um: float = MATCH_RADIUS_UM

    @property
    def stride(self) -> int:
        """Pixels of the grid to a grid cell of the network."""
        return self.model.task.stride

    def layout(self, tile_px: int) -> Layout:
        """Take each tile for a window: a place is in one tile or in another."""
        return Layout(tile_px, window_px=tile_px)

    def settings(self) -> dict[str, float]:
        """Tell what else decides the result."""
        return {"suppression_radius_um": self.radius_um}

    def reduce(self, output: Tensor) -> tuple[Tensor, ...]:
        """Cut off the margin."""
        margin = self.model.margin_px // self.stride
        rows, columns = output.shape[2] - margin, output.shape[3] - margin
        return (output[:, :, margin:rows, margin:columns].cpu(),)

    def find(self, window: Window, parts: Sequence[tuple[Tensor, ...]]) -> Cells:
        """Read the cells off the one tile of a window, on tissue only and before any suppression."""
        ((output,),) = parts
        stride, channels, grid = self.stride, self.model.task.out_channels, self.frame.grid
        core = window.core
        output = output[:, : -(-core.height // stride), : -(-core.width // stride)].clone()
        column, row = (np.arange(size) + 0.5 for size in (output.shape[2], output.shape[1]))
        tissue = self.tissue.at(core.x0 + stride * column, core.y0 + stride * row)
        # Glass is background for certain, whether it has no logit of its own or the first.
        output[0, ~tissue] = -math.inf if channels == 1 else math.inf
        found = decode(
            output, out_channels=channels, stride=stride, threshold=self.model.threshold - 10**-SCORE_DECIMALS
        )
        # Rounded first, and then compared: what is written is what was decided on.
        score = np.round(found.score.astype(np.float64), SCORE_DECIMALS)
        sure = score >= self.model.threshold
        sizes = None if found.size is None else np.round(found.size[sure] * grid.mpp, PLACE_DECIMALS)
        return self.frame.cells(
            grid.to_level0(found.xy[sure] + core[:2]),
            label=found.label[sure] - 1,
            score=score[sure],
            measurements={} if sizes is None else {"Width µm": sizes[:, 0], "Height µm": sizes[:, 1]},
        )

    def settle(self, cells: Cells, *, next_y0: float) -> tuple[Cells, Cells]:
        """Suppress; give the cells that stay for sure, and those that the next band decides."""
        # An offset reaches half a grid cell over the border of a tile.
        edge_y = float(self.frame.grid.to_level0(next_y0 - self.stride / 2)) - 10**-PLACE_DECIMALS
        cells = in_reading_order(cells)
        assert cells.score is not None
        state = settle(cells.xy, cells.score, radius=self.radius_um / self.frame.mpp, edge_y=edge_y)
        return cells[state == KEPT], cells[state == OPEN]
