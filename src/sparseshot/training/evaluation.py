"""How good a model is, at threshold one half as the paper has it, and at the calibrated threshold.

Everything is counted at all thresholds at once, so that the best threshold, which only the ground truth
reveals, is reported beside the two that a user has.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sparseshot.files import write_json
from sparseshot.metrics import Counts, bootstrap_interval, f1_score
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.checkpoint import Checkpoint

LADDER = np.unique(np.concatenate([np.linspace(0.01, 0.99, 99), 1 / (1 + np.exp(-np.arange(-8, 8.01, 0.1)))]))
"""Thresholds among which the best is looked for."""


@dataclass(frozen=True)
class OperatingPoint:
    """Dice (pixels) or F1 (cells) at one threshold.

    Attributes:
        threshold: the operating point.
        pooled: over all pixels or cells of all images together.
        mean: over images, each weighing the same.
        low: lower end of the 95 % bootstrap interval of ``pooled`` over images.
        high: its upper end.
        precision: pooled.
        recall: pooled.
    """

    threshold: float
    pooled: float
    mean: float
    low: float
    high: float
    precision: float
    recall: float


@dataclass(frozen=True)
class Evaluation:
    """A model on images whose cells are all known.

    Attributes:
        task: ``segment``: scores are Dice; ``detect``: F1 within 3 µm.
        images: how many.
        cells: how many they hold.
        half: at threshold 0.5, as in the paper.
        calibrated: at the threshold chosen from held-out marks; None if the model has none.
        best: at the threshold that is best for these images: a bound, not a result.
    """

    task: str
    images: int
    cells: int
    half: OperatingPoint
    calibrated: OperatingPoint | None
    best: OperatingPoint

    def write(self, path: Path) -> None:
        """Write as JSON; a precision of nothing found is null."""
        write_json(path, asdict(self))


def evaluate(
    checkpoint: Checkpoint,
    images: Sequence[AnnotatedSlide],
    *,
    network: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Evaluation:
    """Score a model on images at all thresholds."""
    task, labelling = checkpoint.config.make_task(), checkpoint.config.labelling
    module = checkpoint.network(network).to(device)
    thresholds = np.append(LADDER, [0.5] if checkpoint.threshold is None else [0.5, checkpoint.threshold])
    counts = np.zeros((len(images), len(thresholds), 3), np.int64)
    cells = 0
    for index, item in enumerate(images):
        truth = labelling.positives(item.cells)
        cells += len(truth)
        region = item.look_at(module, checkpoint.config, threshold=LOWEST_SCORE, halo_px=0)
        counted = np.ones((region.window.core.height, region.window.core.width), np.bool_)
        hits = region.finder.hits(region.window, region.parts, truth, counted)
        counts[index] = hits.counts_at(thresholds)
    pooled = f1_score(*counts.sum(axis=0).T)
    calibrated = None if checkpoint.threshold is None else _score(counts[:, -1], checkpoint.threshold)
    best = int(np.argmax(pooled))
    return Evaluation(
        task.name,
        len(images),
        cells,
        _score(counts[:, len(LADDER)], 0.5),
        calibrated,
        _score(counts[:, best], float(thresholds[best])),
    )


def _score(counts: NDArray[np.int64], threshold: float) -> OperatingPoint:
    pooled = Counts(*map(int, counts.sum(axis=0)))
    low, high = bootstrap_interval(counts, lambda total: f1_score(*np.moveaxis(total, -1, 0)))
    return OperatingPoint(
        threshold, pooled.f1, float(f1_score(*counts.T).mean()), low, high, pooled.precision, pooled.recall
    )
