"""Marks kept from training, and the operating point chosen from them alone.

A model trained on a fraction of the marks assigns a true cell about that fraction as its probability, so a
fixed threshold of one half means nothing. Held-out marks give recall; the share of locations above a
threshold needs no marks; the quotient recall² / P(predicted positive) is highest where F1 is (Lee & Liu
2003), and needs no negatives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.images import Box
from sparseshot.metrics import Calibration, Evidence, Interval, ScoreHistogram, calibrate_threshold
from sparseshot.models.config import TrainConfig
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.inference import CONTEXT_PX, Region
from sparseshot.models.task import IGNORED
from sparseshot.training.annotated import AnnotatedSlide


@dataclass(frozen=True)
class HeldOut:
    """A box of a slide whose marks are kept from training.

    Attributes:
        item: the slide.
        box: in pixels of the working resolution.
        label: ``(H, W)`` int16, as in :class:`~sparseshot.training.canvas.Patch`; ignored ones do not count.
        xy: ``(K, 2)`` places of the positive marks, in pixels of the working resolution.
        seen: there were too few marks to keep these from training.
    """

    item: AnnotatedSlide
    box: Box
    label: NDArray[np.int16]
    xy: NDArray[np.float64]
    seen: bool = False


def gather_evidence(
    network: nn.Module, config: TrainConfig, held_out: Sequence[HeldOut], *, prior: float | None = None
) -> tuple[Evidence, Calibration] | None:
    """Score held-out marks and everything found around them, and choose the threshold; None without marks.

    ``prior`` is the threshold that the loss is built for, if any.
    """
    if not any(len(part.xy) for part in held_out):
        return None
    evidence, regions = Evidence(), []
    for part in held_out:
        region = part.item.look_at(network, config, threshold=LOWEST_SCORE, box=part.box, halo_px=CONTEXT_PX)
        marked, everything = region.finder.mark_scores(region.window, region.parts, part.label, part.xy)
        places = int((part.label > IGNORED).sum()) // config.make_task().stride ** 2
        evidence += Evidence(
            ScoreHistogram.of(marked),
            ScoreHistogram.of(everything),
            len(part.xy),
            places,
            held_out=not part.seen,
        )
        regions.append(region)
    evidence = replace(evidence, marks=min(evidence.marks, evidence.of_marks.total))
    chosen = calibrate_threshold(
        evidence.of_marks, evidence.of_all, marks=evidence.marks, places=evidence.places, prior=prior
    )
    # Outlines change with the threshold; detections at a higher one are some of those at a lower.
    only_at = chosen.threshold if config.make_task().paints_marks else None
    for part, region in zip(held_out, regions, strict=True):
        evidence += _hits(part, region, config, LOWEST_SCORE if only_at is None else only_at)
    return replace(evidence, only_at=only_at, interval=Interval(chosen.low, chosen.high)), chosen


def _hits(part: HeldOut, region: Region, config: TrainConfig, threshold: float) -> Evidence:
    """Compare the cells that are found at a threshold with the held-out marks."""
    finder = replace(region.finder, threshold=threshold)  # type: ignore[type-var]  # finders are dataclasses
    found, _ = finder.settle(finder.find(region.window, region.parts), next_y0=math.inf)
    low, high = region.frame.grid.to_level0(part.box).reshape(2, 2)
    marks = config.labelling.positives(part.item.marks)
    marks = marks[((marks.xy >= low) & (marks.xy < high)).all(axis=1)]
    return Evidence.of_cells(found, marks, part.item.marks.regions)
