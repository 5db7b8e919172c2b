"""Marks kept from training, and the operating point chosen from them alone.

A model trained on a fraction of the marks assigns a true cell about that fraction as its probability, so a
fixed threshold of one half means nothing. Held-out marks give recall; the share of locations above a
threshold needs no marks; the quotient recall² / P(predicted positive) is highest where F1 is (Lee & Liu
2003), and needs no negatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.images import Box
from sparseshot.metrics import Calibration, Evidence, ScoreHistogram, calibrate_threshold
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
        exhaustive: ``(H, W)`` bool: inside a region in which every cell is marked.
        seen: there were too few marks to keep these from training.
    """

    item: AnnotatedSlide
    box: Box
    label: NDArray[np.int16]
    xy: NDArray[np.float64]
    exhaustive: NDArray[np.bool_] | None = None
    seen: bool = False


def gather_evidence(network: nn.Module, config: TrainConfig, held_out: Sequence[HeldOut]) -> Evidence | None:
    """Score held-out marks and everything found around them; None where there are no marks."""
    if not any(len(part.xy) for part in held_out):
        return None
    evidence = Evidence()
    for part in held_out:
        region = part.item.look_at(network, config, threshold=LOWEST_SCORE, box=part.box, halo_px=CONTEXT_PX)
        histograms = _histograms(region, part.label, part.xy)
        certain = (ScoreHistogram(), ScoreHistogram())
        if part.exhaustive is not None and part.exhaustive.any():
            column, row = np.floor(part.xy - part.box[:2]).astype(np.intp).T
            label = np.where(part.exhaustive, part.label, IGNORED)
            certain = _histograms(region, label, part.xy[part.exhaustive[row, column]])
        places = int((part.label > IGNORED).sum()) // config.make_task().stride ** 2
        evidence += Evidence(*histograms, len(part.xy), places, *certain, held_out=not part.seen)
    return replace(evidence, marks=min(evidence.marks, evidence.of_marks.total))


def _histograms(
    region: Region, label: NDArray[np.int16], xy: NDArray[np.float64]
) -> tuple[ScoreHistogram, ScoreHistogram]:
    marked, everything = region.finder.mark_scores(region.window, region.parts, label, xy)
    return ScoreHistogram.of(marked), ScoreHistogram.of(everything)


def calibrate(evidence: Evidence, *, prior: float | None = None) -> Calibration:
    """Choose the threshold from held-out marks alone.

    ``prior`` is the threshold that the loss is built for, if any.
    """
    return calibrate_threshold(
        evidence.of_marks, evidence.of_all, marks=evidence.marks, places=evidence.places, prior=prior
    )
