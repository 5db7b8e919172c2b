"""Marks kept from training, and the operating point chosen from them alone.

A model trained on a fraction of the marks assigns a true cell about that fraction as its probability, so a
fixed threshold of one half means nothing. Held-out marks tell recall; the share of locations above a
threshold needs no marks; the quotient recall² / P(predicted positive) is highest where F1 is (Lee & Liu
2003), and needs no negatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.images import Box
from sparseshot.metrics import Calibration, ScoreHistogram, calibrate_threshold
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.task import IGNORED
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.config import TrainConfig

_CONTEXT_PX = 16
"""Pixels around a box in which detections are suppressed together with those inside."""


@dataclass(frozen=True)
class HeldOut:
    """A box of a slide whose marks are kept from training.

    Attributes:
        item: the slide.
        box: in pixels of the working resolution.
        label: ``(H, W)`` int16, as in :class:`~sparseshot.training.canvas.Patch`; ignored ones do not count.
        xy: ``(K, 2)`` places of the positive marks, in pixels of the working resolution.
    """

    item: AnnotatedSlide
    box: Box
    label: NDArray[np.int16]
    xy: NDArray[np.float64]


def calibrate(
    network: nn.Module, config: TrainConfig, held_out: Sequence[HeldOut], *, prior: float | None = None
) -> Calibration | None:
    """Choose the threshold from held-out marks alone; None where there are none.

    ``prior`` is the threshold that the loss is built for, if any.
    """
    marks = sum(len(part.xy) for part in held_out)
    if not marks:
        return None
    of_marks, of_all, places = ScoreHistogram(), ScoreHistogram(), 0
    for part in held_out:
        region = part.item.look_at(network, config, threshold=LOWEST_SCORE, box=part.box, halo_px=_CONTEXT_PX)
        marked, everything = region.finder.mark_scores(region.window, region.parts, part.label, part.xy)
        of_marks += ScoreHistogram.of(marked)
        of_all += ScoreHistogram.of(everything)
        places += int((part.label > IGNORED).sum()) // config.make_task().stride ** 2
    return calibrate_threshold(of_marks, of_all, marks=min(marks, of_marks.total), places=places, prior=prior)
