"""A network's view of a small region: what it finds there, what it doubts, and what the place looks like."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

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
from sparseshot.models.kinds import PROBABILITY
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
        cell_features: ``(N, F)`` for the kinds of the cells found.
        undecided: number of found cells whose kind is undecided, by the two kinds.
        kind_doubt: expected number of wrong kinds.
    """

    found: Cells
    sure: Cells
    doubt: float
    features: NDArray[np.float64]
    cell_features: NDArray[np.float32]
    undecided: Mapping[tuple[str, str], int] = field(default_factory=dict)
    kind_doubt: float = 0.0


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
        cells, features = region.cells_and_features
        score = np.zeros(len(cells)) if cells.score is None else cells.score
        above = _above(score, model.threshold)
        found = self.frame.with_kinds(cells[above >= 0], features[above >= 0])
        undecided, kind_doubt = undecided_kinds(found)
        return Look(
            found=found,
            sure=cells[above >= _SURE_LOGITS],
            doubt=float(decision_doubts(score, model.threshold).sum()),
            features=np.asarray(torch.stack(seen).mean(0).double().numpy()),
            cell_features=features[above >= 0],
            undecided=undecided,
            kind_doubt=kind_doubt,
        )


def undecided_kinds(cells: Cells) -> tuple[dict[tuple[str, str], int], float]:
    """Return the numbers of cells undecided between two kinds, and the expected number of wrong kinds.

    A cell is undecided where its most probable kind is less than twice as probable as the next. Cells without
    probabilities of the kinds of marks are in no doubt.

    >>> p = {"Probability a": [0.9, 0.5, 0.4], "Probability b": [0.1, 0.4, 0.6]}
    >>> cells = Cells([[0, 0], [1, 1], [2, 2]], classes=("a", "b"), measurements=p)
    >>> undecided_kinds(cells)
    ({('a', 'b'): 2}, 1.0)
    """
    names = [f"{PROBABILITY} {name}" for name in cells.classes]
    if len(names) < 2 or not len(cells) or not all(name in cells.measurements for name in names):
        return {}, 0.0
    p = np.stack([cells.measurements[name] for name in names], axis=1)
    first, second = np.sort(np.argsort(-p, axis=1, kind="stable")[:, :2], axis=1).T
    low, high = np.sort(p, axis=1)[:, -2:].T
    pairs = Counter(zip(first[high < 2 * low].tolist(), second[high < 2 * low].tolist(), strict=True))
    undecided = {(cells.classes[a], cells.classes[b]): count for (a, b), count in pairs.items()}
    return undecided, round(float((1 - high).sum()), 6)


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
