"""A network's view of a small region: what it finds there, what it doubts, and what the place looks like."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sparseshot.cells import Cells
from sparseshot.images import Box, Slide
from sparseshot.images.tissue import TissueMask
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.inference import look_at
from sparseshot.prediction.model import Model

_SURE_LOGITS = 2.0
"""How far above the threshold, in logits, a cell is certain."""


@dataclass(frozen=True, eq=False)
class Look:
    """What a network sees in a region.

    Attributes:
        found: cells at the threshold and above.
        sure: those well above.
        doubt: expected number of wrong decisions.
        features: mean and spread of the activations before the last layer.
    """

    found: Cells
    sure: Cells
    doubt: float
    features: NDArray[np.float64]


class RegionScout:
    """Looks at regions of one slide.

    Args:
        model: the model.
        slide: the slide.
        side_um: side of a region.
        tissue: its tissue; None: tissue everywhere.
    """

    def __init__(self, model: Model, slide: Slide, side_um: float, tissue: TissueMask | None = None) -> None:
        self.model, self.slide = model, slide
        self.tissue = tissue or TissueMask.everywhere(slide)
        self.frame = model.frame(slide)
        self.side_px = max(1, round(side_um / self.frame.grid.mpp))

    def around(self, xy: NDArray[np.float64]) -> Box:
        """Return the region around a place in level-0 pixels."""
        grid = self.frame.grid
        x, y = (int(each) - self.side_px // 2 for each in grid.from_level0(xy))
        x, y = max(0, min(x, grid.width - self.side_px)), max(0, min(y, grid.height - self.side_px))
        return Box(x, y, x + self.side_px, y + self.side_px).meet(grid.box)

    def look(self, box: Box) -> Look:
        """Run the network over a region, in pixels of the grid."""
        model = self.model
        # Outlines at a lower threshold would be those of several cells together.
        lowest = model.threshold if model.task.paints_marks else min(LOWEST_SCORE, model.threshold)
        seen: list[Tensor] = []
        with _watched(model.network, seen):
            region = look_at(
                model.network,
                model.task,
                self.slide,
                self.frame,
                threshold=lowest,
                box=box,
                tissue=self.tissue,
            )
        cells = region.cells
        score = np.zeros(len(cells)) if cells.score is None else cells.score
        above = _above(score, model.threshold)
        return Look(
            found=cells[above >= 0],
            sure=cells[above >= _SURE_LOGITS],
            doubt=float(decision_doubts(score, model.threshold).sum()),
            features=np.asarray(torch.stack(seen).mean(0).double().numpy()),
        )


def decision_doubts(score: NDArray[np.floating], threshold: float) -> NDArray[np.float64]:
    """Return the probability that a decision is wrong: one half at the threshold, 0 far from it.

    >>> decision_doubts(np.array([0.1, 0.5, 0.6, 0.99]), 0.5).round(2).tolist()
    [0.0, 0.5, 0.4, 0.0]
    """
    far = np.abs(_above(score, threshold))
    return np.where(far < _SURE_LOGITS, 1 / (1 + np.exp(far)), 0.0)


def _above(score: NDArray[np.floating], threshold: float) -> NDArray[np.float64]:
    """Return how far scores lie above the threshold, in logits."""
    p = np.clip(np.append(np.asarray(score, np.float64), threshold), 1e-6, 1 - 1e-6)
    logit = np.log(p) - np.log1p(-p)
    return np.asarray(logit[:-1] - logit[-1])


def _watched(network: nn.Module, seen: list[Tensor]) -> RemovableHandle:
    """Collect mean and spread of what enters the last layer of a network, or of what leaves one without."""

    def see(activations: Tensor) -> None:
        flat = activations.detach().float().flatten(2)
        seen.append(torch.cat([flat.mean(2), flat.std(2)], dim=1)[0].cpu())

    head = getattr(network, "head", None)
    if isinstance(head, nn.Module):
        return head.register_forward_pre_hook(lambda _, inputs: see(inputs[0]))
    return network.register_forward_hook(lambda *call: see(call[2]))
