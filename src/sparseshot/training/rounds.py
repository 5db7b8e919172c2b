"""Weak supervision, as in the paper's table 1: train, add confident predictions to the marks, train again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from sparseshot.cells import Cells
from sparseshot.cells.near import is_near
from sparseshot.errors import InputError
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainConfig
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache
from sparseshot.training.prepare import LARGEST_WHOLE_PX, make_canvas
from sparseshot.work.run_files import ROUNDS

Trainer = Callable[[Sequence[AnnotatedSlide], Path], Checkpoint]


@dataclass(frozen=True)
class WeakSupervision:
    """Number of rounds, and the confidence at which a prediction becomes a mark.

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
    """Train in rounds; the last is the run in ``folder``, the others are in ``folder/rounds``.

    Args:
        weak: number of rounds and confidence.
        config: of every round.
        training: slides with the marks people made.
        folder: of the run.
        trainer: trains on slides in a folder.
    """
    marked = list(training)
    for number in range(1, weak.rounds):
        checkpoint = trainer(marked, folder / ROUNDS / str(number))
        network = checkpoint.network()
        marked = [promoted(item, network, config, tau=weak.tau) for item in training]
    return trainer(marked, folder)


def promoted(item: AnnotatedSlide, network: nn.Module, config: TrainConfig, *, tau: float) -> AnnotatedSlide:
    """Return the slide with the model's confident predictions added to its marks."""
    canvas, task = make_canvas(item, config), config.make_task()
    grid = canvas.grid
    if grid.width * grid.height > LARGEST_WHOLE_PX:
        raise InputError(
            f"{item.slide.name} is too large for rounds of weak supervision; cut regions out of it"
        )
    label = canvas.cut(grid.box, BlockCache(0)).label
    region = item.look_at(network, config, threshold=tau, halo_px=0)
    more = region.finder.confident(region.window, region.parts, label)
    if not task.paints_marks:
        # A mark is one point of the label map; a detection beside it is the same cell.
        radius = MATCH_RADIUS_UM / grid.mpp
        more = more[~is_near(grid.from_level0(more.xy), canvas.points.xy, radius=radius)]
    marks, more = (
        replace(each, id=None, score=None, measurements={}, kind=None) for each in (item.marks, more)
    )
    more = replace(more, mpp=marks.mpp, colors=None)
    return replace(item, marks=Cells.concatenate([marks, more]))
