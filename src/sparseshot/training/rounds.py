"""Weak supervision, as in the paper's table 1: train, take sure predictions for marks, train again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import shapely
import torch
from scipy import ndimage
from scipy.spatial import cKDTree
from torch import nn

from sparseshot.cells import Cells, trace
from sparseshot.errors import InputError
from sparseshot.models.grid import foreground_probability
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import UNANNOTATED, BlockCache
from sparseshot.training.checkpoint import Checkpoint
from sparseshot.training.config import TrainConfig
from sparseshot.training.held_out import MATCH_RADIUS_UM, find
from sparseshot.training.inference import whole_image_output
from sparseshot.training.prepare import LARGEST_WHOLE_PX, make_canvas

Trainer = Callable[[Sequence[AnnotatedSlide], Path], Checkpoint]


@dataclass(frozen=True)
class WeakSupervision:
    """How many rounds, and how sure a prediction must be to become a mark.

    Attributes:
        rounds: trainings, each from scratch; 1 is ordinary training.
        tau: predictions with p > tau in unannotated places become positives of the next round.
    """

    rounds: int = 2
    tau: float = 0.75

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds is {self.rounds}; give at least 1")
        if not 0 < self.tau < 1:
            raise InputError(f"tau is {self.tau}; give a probability between 0 and 1")


def train_in_rounds(
    weak: WeakSupervision,
    config: TrainConfig,
    training: Sequence[AnnotatedSlide],
    folder: Path,
    *,
    trainer: Trainer,
) -> Checkpoint:
    """Train round after round; the last is the run in ``folder``, the others stand in ``folder/rounds``.

    Args:
        weak: how.
        config: of every round.
        training: images with the marks people made.
        folder: the run.
        trainer: trains on marked images in a folder.
    """
    marked = list(training)
    for number in range(1, weak.rounds):
        checkpoint = trainer(marked, folder / "rounds" / str(number))
        network = checkpoint.network()
        marked = [promoted(item, network, config, tau=weak.tau) for item in training]
    return trainer(marked, folder)


def promoted(item: AnnotatedSlide, network: nn.Module, config: TrainConfig, *, tau: float) -> AnnotatedSlide:
    """Return the image with the model's sure predictions added to its marks."""
    canvas = make_canvas(item, config)
    if canvas.width * canvas.height > LARGEST_WHOLE_PX:
        raise InputError(
            f"{item.slide.name} is too large for rounds of weak supervision; cut regions out of it"
        )
    patch = canvas.cut(canvas.grid.box, BlockCache(0))
    task = config.make_task()
    if task.name == "detect":
        found = find(network, task, patch.image, mpp=canvas.grid.mpp, threshold=tau)
        row, col = np.minimum(found.xy[:, ::-1].astype(int), np.array(patch.label.shape) - 1).T
        new = patch.label[row, col] == UNANNOTATED
        if len(canvas.points.xy) and len(found.xy):
            distance, _ = cKDTree(canvas.points.xy).query(found.xy)
            new &= distance > MATCH_RADIUS_UM / canvas.grid.mpp
        more = Cells(found.xy[new], classes=config.labelling.names, label=found.label[new] - 1)
    else:
        logits = task.logits(whole_image_output(network, patch.image)[None])
        sure = (foreground_probability(logits)[0] > tau).numpy() & (patch.label == UNANNOTATED)
        winner = (
            logits[0, 1:].argmax(dim=0) if logits.shape[1] > 1 else torch.zeros(sure.shape, dtype=torch.int64)
        )
        parts = [Cells(np.empty((0, 2)), classes=config.labelling.names, outline=np.empty(0, object))]
        for label in range(len(config.labelling.names)):
            pieces, _ = ndimage.label(sure & (winner == label).numpy())
            _, xy, outline = trace(pieces)
            parts.append(
                Cells(xy, classes=config.labelling.names, label=np.full(len(xy), label), outline=outline)
            )
        more = Cells.concatenate(parts)
    to_level0 = canvas.grid.to_level0
    outlines = None if more.outline is None else shapely.transform(more.outline, to_level0)
    more = replace(more, xy=to_level0(more.xy), outline=outlines, mpp=item.marks.mpp)
    marks = replace(item.marks, id=None, score=None, measurements={}, kind=None)
    return replace(item, marks=Cells.concatenate([marks, more]))
