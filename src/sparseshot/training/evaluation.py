"""How good a model is, at threshold one half as the paper has it, and at the calibrated threshold.

Everything is counted at all thresholds at once, so that the best threshold, which only the ground truth
reveals, is reported beside the two that a user has.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
import torch
from numpy.typing import NDArray
from torch import nn

from sparseshot.cells import Cells
from sparseshot.errors import InputError, TrainingWarning
from sparseshot.images import Box, Grid
from sparseshot.metrics import (
    AreaCounts,
    Counts,
    KindCounts,
    KindScores,
    bootstrap_interval,
    f1_score,
    kind_scores,
)
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.training.annotated import AnnotatedSlide

LADDER = np.unique(np.concatenate([np.linspace(0.01, 0.99, 99), 1 / (1 + np.exp(-np.arange(-8, 8.01, 0.1)))]))
"""Thresholds among which the best is chosen."""

SPARSE = 3.0
"""Found to marked, the ratio above which marks without a region are plainly sparse."""


@dataclass(frozen=True)
class OperatingPoint:
    """Dice (pixels) or F1 (cells) at one threshold.

    Attributes:
        threshold: the operating point.
        pooled: over all pixels or cells of all images together.
        mean: over images, each weighing the same.
        low: lower end of the 95 % bootstrap interval of ``pooled`` over images, or over the regions of a
            single one; nan where there is one region or image.
        high: its upper end.
        precision: pooled.
        recall: pooled.
        panoptic_quality: of the outlines; None for detection, without true outlines, and at ``best``.
        aggregated_jaccard_index: of the outlines.
        f1_at_iou_half: F1 of outlines that are right with an IoU above one half.
        f1_at_iou_tight: with an IoU of at least 0.7.
    """

    threshold: float
    pooled: float
    mean: float
    low: float
    high: float
    precision: float
    recall: float
    panoptic_quality: float | None = None
    aggregated_jaccard_index: float | None = None
    f1_at_iou_half: float | None = None
    f1_at_iou_tight: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model; in JSON, a score that has no meaning is null.

    Attributes:
        task: ``segment``: scores are Dice; ``detect``: F1 within 3 µm.
        images: number of images counted.
        cells: number of their cells.
        half: at threshold 0.5, as in the paper.
        calibrated: at the threshold chosen from held-out marks; None if the model has none.
        best: at the threshold that is best for these images: a bound, not a result.
        regions: number of exhaustive regions, outside of which nothing is counted; 0: whole images.
        sparse: the marks are far fewer than the cells found, so that only recall is meaningful.
        kinds: scores of the kinds at the model's threshold; None if it has none or the marks are sparse.
    """

    task: str
    images: int
    cells: int
    half: OperatingPoint
    calibrated: OperatingPoint | None
    best: OperatingPoint
    regions: int = 0
    sparse: bool = False
    kinds: KindScores | None = None


def evaluate(
    checkpoint: Checkpoint,
    images: Sequence[AnnotatedSlide],
    *,
    exhaustive: bool = True,
    network: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Evaluation:
    """Score a model on images at all thresholds.

    If any of the images has exhaustive regions, only these are counted.

    Args:
        checkpoint: the model.
        images: with their marks, or with their truth.
        exhaustive: every cell of the images is known. If not, and there are no regions either, marks that are
            far fewer than the cells found leave recall as the only score, with a warning.
        network: a custom network, if the model was trained with one.
        device: to run on.
    """
    task, config = checkpoint.config.make_task(), checkpoint.config
    module = checkpoint.network(network).to(device)
    thresholds = np.append(LADDER, [0.5] if checkpoint.threshold is None else [0.5, checkpoint.threshold])
    regions = [shapely.get_parts(shapely.union_all(item.cells.regions)) for item in images]
    has_regions = any(map(len, regions))
    counts, cells = [], 0  # of images, each (parts, thresholds, 3)
    kinds: list[KindCounts] = []
    areas: list[list[AreaCounts | None]] = [[] for _ in thresholds[len(LADDER) :]]
    for item, own in zip(images, regions, strict=True):
        if has_regions and not len(own):
            continue
        truth = config.labelling.positives(item.cells)
        grid = Grid.over(item.slide, config.mpp)
        parts = [_inside(item, truth, area, grid) for area in own]
        if not parts:
            parts = [(grid.box, truth, np.ones((grid.height, grid.width), np.bool_))]
        own_counts = []
        for box, inside, counted in parts:
            cells += len(inside)
            region = item.look_at(module, config, threshold=LOWEST_SCORE, box=box)
            hits = region.finder.hits(region.window, region.parts, inside, counted)
            if checkpoint.kinds is not None:
                kinds.append(_kinds_of(checkpoint, module, item, box, counted))
            own_counts.append(hits.counts_at(thresholds))
            for at, threshold in zip(areas, thresholds[len(LADDER) :].tolist(), strict=True):
                at.append(
                    region.finder.area_counts(
                        region.window, region.parts, inside, counted, threshold=threshold
                    )
                )
        counts.append(np.stack(own_counts))
    every = np.stack([own.sum(axis=0) for own in counts])
    units = counts[0] if len(counts) == 1 else every
    tp, fp, fn = every[:, -1].sum(axis=0)
    sparse = not exhaustive and not has_regions and tp + fp > SPARSE * (tp + fn)
    if sparse:
        warnings.warn(
            f"{(tp + fp) / max(1, tp + fn):.0f} times as much is found as is marked, so most cells are not "
            "marked: precision and F1 mean nothing here, only recall does; to measure them, mark every cell "
            "inside a region and draw an annotation of class Exhaustive around it",
            TrainingWarning,
            stacklevel=2,
        )
    pooled = f1_score(*every.sum(axis=0).T)
    best = int(np.argmax(pooled))

    def point(k: int, areas: Sequence[AreaCounts | None] = ()) -> OperatingPoint:
        return _point(every[:, k], units[:, k], float(thresholds[k]), sparse, areas)

    return Evaluation(
        task.name,
        len(counts),
        cells,
        half=point(len(LADDER), areas[0]),
        calibrated=None if checkpoint.threshold is None else point(-1, areas[1]),
        best=point(best),
        regions=sum(map(len, regions)),
        sparse=bool(sparse),
        kinds=kind_scores(kinds) if kinds and not sparse else None,
    )


def _kinds_of(
    checkpoint: Checkpoint, network: nn.Module, item: AnnotatedSlide, box: Box, counted: NDArray[np.bool_]
) -> KindCounts:
    """Count the kinds on the counted pixels of a box, at the threshold of the model."""
    assert checkpoint.kinds is not None
    region = item.look_at(network, checkpoint.config, threshold=checkpoint.threshold or 0.5, box=box)
    found = checkpoint.kinds.assign(*region.cells_and_features)
    truth = item.cells[checkpoint.config.labelling.targets(item.cells) > 0]
    truth, found = (region.frame.counted(cells, box, counted) for cells in (truth, found))
    return KindCounts.of(truth, found, checkpoint.kinds.names[1:])


def _inside(
    item: AnnotatedSlide, truth: Cells, area: shapely.Geometry, grid: Grid
) -> tuple[Box, Cells, NDArray[np.bool_]]:
    """Return the box around an area in grid pixels, the cells in the area, and its pixels in the box."""
    x0, y0, x1, y1 = grid.from_level0(area.bounds)
    box = Box(math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)).meet(grid.box)
    if not (box.width and box.height):
        raise InputError(f"{item.slide.name}: an exhaustive region lies outside the slide")
    mask = grid.rasterise(Cells([area.representative_point().coords[0]], outline=np.array([area])), box)
    return box, truth[shapely.contains_xy(area, *truth.xy.T)], mask > 0


def _point(
    counts: NDArray[np.int64],
    units: NDArray[np.int64],
    threshold: float,
    sparse: bool,
    areas: Sequence[AreaCounts | None],
) -> OperatingPoint:
    """Return the scores by the counts of images; ``units`` are resampled for the interval."""
    nan = float("nan")
    pooled = Counts(*map(int, counts.sum(axis=0)))
    if sparse:
        return OperatingPoint(threshold, nan, nan, nan, nan, nan, pooled.recall)
    low = high = nan
    if len(units) > 1:
        low, high = bootstrap_interval(units, lambda total: f1_score(*np.moveaxis(total, -1, 0)))
    known = [area for area in areas if area is not None]
    outlines = {}
    if known and len(known) == len(areas):
        area = sum(known, AreaCounts())
        outlines = {
            "panoptic_quality": area.panoptic_quality,
            "aggregated_jaccard_index": area.aggregated_jaccard_index,
            "f1_at_iou_half": area.recognition_quality,
            "f1_at_iou_tight": area.tight_f1,
        }
    return OperatingPoint(
        threshold,
        pooled.f1,
        float(f1_score(*counts.T).mean()),
        low,
        high,
        pooled.precision,
        pooled.recall,
        **outlines,
    )
