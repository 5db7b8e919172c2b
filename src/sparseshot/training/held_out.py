"""Marks that training never saw, and the operating point chosen from them alone.

A model trained on a fraction of the marks gives a true cell about that fraction as its probability, so that
a fixed threshold of one half means nothing. Held-out marks tell recall; the share of locations above a
threshold is known without any marks; their quotient recall² / P(predicted positive) is highest where F1 is
(Lee & Liu 2003), and needs no negatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.cells.suppression import suppress
from sparseshot.metrics import Calibration, ScoreHistogram, calibrate_threshold, mark_scores
from sparseshot.models.grid import Found, decode, foreground_probability
from sparseshot.models.tasks import Task
from sparseshot.training.canvas import IGNORED
from sparseshot.training.inference import whole_image_output

LOWEST_SCORE = 0.01
"""Detections below this are never looked at: a threshold lower than that would find everything."""

MATCH_RADIUS_UM = 3.0
"""How near a detection must lie to a mark to be it."""


@dataclass(frozen=True)
class HeldOut:
    """An image at the working resolution whose marks are kept from training.

    Attributes:
        image: ``(H, W, 3)`` uint8.
        label: ``(H, W)`` int16, as in :class:`~sparseshot.training.canvas.Patch`; ignored ones do not count.
        xy: ``(K, 2)`` places of the positive marks, in its pixels.
        mpp: µm of a pixel.
    """

    image: NDArray[np.uint8]
    label: NDArray[np.int16]
    xy: NDArray[np.float64]
    mpp: float


def calibrate(network: nn.Module, task: Task, held_out: Sequence[HeldOut]) -> Calibration | None:
    """Choose the threshold from held-out marks alone; None where there are none."""
    marks = sum(len(part.xy) for part in held_out)
    if not marks:
        return None
    of_marks, of_all, places = ScoreHistogram(), ScoreHistogram(), 0
    scores = _pixel_scores if task.name == "segment" else _object_scores
    for part in held_out:
        marked, everything = scores(network, task, part)
        of_marks += ScoreHistogram.of(marked)
        of_all += ScoreHistogram.of(everything)
        places += int((part.label > IGNORED).sum()) // task.stride**2
    return calibrate_threshold(of_marks, of_all, marks=min(marks, of_marks.total), places=places)


def find(network: nn.Module, task: Task, image: NDArray[np.uint8], *, mpp: float, threshold: float) -> Found:
    """Find the cells of an image with a detector: one of several that lie within the radius, the surest."""
    output = whole_image_output(network, image)
    found = decode(output, out_channels=task.out_channels, stride=task.stride, threshold=threshold)
    kept = suppress(found.xy, found.score, radius=MATCH_RADIUS_UM / mpp)
    return Found(
        found.xy[kept], found.score[kept], found.label[kept], None if found.size is None else found.size[kept]
    )


def pixel_probability(network: nn.Module, task: Task, image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return p of any foreground for each pixel of an image."""
    logits = task.logits(whole_image_output(network, image)[None])
    p: NDArray[np.float32] = foreground_probability(logits)[0].numpy()
    return p


def _pixel_scores(
    network: nn.Module, task: Task, part: HeldOut
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    p = pixel_probability(network, task, part.image)
    return p[part.label > 0], p[part.label > IGNORED]


def _object_scores(
    network: nn.Module, task: Task, part: HeldOut
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    found = find(network, task, part.image, mpp=part.mpp, threshold=LOWEST_SCORE)
    col, row = np.clip(np.floor(found.xy).astype(int), 0, np.array(part.label.shape)[::-1] - 1).T
    counted = part.label[row, col] > IGNORED
    xy, score = found.xy[counted], found.score[counted]
    return mark_scores(part.xy, xy, score, radius=MATCH_RADIUS_UM / part.mpp), score
