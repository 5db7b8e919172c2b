"""Results derived from others: two runs compared, and what the loss left out of the background."""

from dataclasses import replace

import numpy as np

from sparseshot.cells import Cells
from sparseshot.cells.near import is_inside, is_near
from sparseshot.losses.adaptive import exclusion_probability
from sparseshot.metrics.matching import match_points
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.studio.found_cells import FoundCells

COMPARED = ("found by both", "only the first", "only the second")
_COMPARED_COLORS = ((255, 255, 255), (230, 159, 0), (86, 180, 233))
EXCLUDED = ("left out by the loss", "counted as background", "marked")
_EXCLUDED_COLORS = ((213, 94, 0), (86, 180, 233), (240, 228, 66))


def compared(first: FoundCells, second: FoundCells, *, thresholds: tuple[float, float]) -> FoundCells:
    """Match what two models found, each at its own threshold, one to one within 3 µm.

    >>> one = FoundCells.of(Cells([[5, 5], [90, 90]], score=[0.9, 0.8]), mpp=0.5)
    >>> two = FoundCells.of(Cells([[6, 5], [40, 40]], score=[0.9, 0.8]), mpp=0.5)
    >>> compared(one, two, thresholds=(0.5, 0.5)).counts(threshold=0)
    {'found by both': 1, 'only the first': 1, 'only the second': 1}
    """
    a, b = (cells.score >= threshold for cells, threshold in zip((first, second), thresholds, strict=True))
    xy, other = first.cells.xy[a], second.cells.xy[b]
    matching = match_points(xy, other, radius=MATCH_RADIUS_UM / first.mpp)
    alone, label = np.ones(len(other), bool), np.ones(len(xy), np.int16)
    alone[matching.found] = False
    label[matching.truth] = 0
    cells = Cells(
        np.concatenate([xy, other[alone]]),
        classes=COMPARED,
        label=np.concatenate([label, np.full(int(alone.sum()), 2, np.int16)]),
        score=np.concatenate([first.score[a], second.score[b][alone]]),
        colors=_COMPARED_COLORS,
    )
    return FoundCells.of(cells, mpp=first.mpp)


def exclusion(checkpoint: Checkpoint) -> float | None:
    """Return ρ at the end of a training: unmarked places of this probability were excluded.

    None for a loss whose last ρ is not recorded.
    """
    if checkpoint.config.loss != "adaptive":
        return None
    share = None if checkpoint.evidence is None else checkpoint.evidence.marked_share
    return exclusion_probability(share or 0.0, points=checkpoint.config.task == "detect")


def excluded(found: FoundCells, marks: Cells, *, rho: float) -> FoundCells:
    """Divide found cells into marked ones, those the loss excluded, and those it counted as background.

    Args:
        found: cells that the trained model found.
        marks: those it was trained on; inside exhaustive regions everything is marked.
        rho: see :func:`exclusion`.
    """
    is_marked = is_near(found.cells.xy, marks.xy, radius=MATCH_RADIUS_UM / found.mpp)
    is_marked |= is_inside(found.cells.xy, marks.regions)
    label = np.where(is_marked, 2, np.where(found.score >= rho, 0, 1)).astype(np.int16)
    return replace(found, cells=replace(found.cells, classes=EXCLUDED, label=label, colors=_EXCLUDED_COLORS))
