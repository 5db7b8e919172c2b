"""Training from annotated slides: crops, the loop, checkpoints, thresholds, evaluation."""

from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainConfig
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.evaluation import Evaluation, evaluate
from sparseshot.training.loop import train
from sparseshot.training.rounds import WeakSupervision
from sparseshot.training.runs import make_config, train_run

__all__ = [
    "AnnotatedSlide",
    "Checkpoint",
    "Evaluation",
    "TrainConfig",
    "TrainingData",
    "WeakSupervision",
    "evaluate",
    "make_config",
    "train",
    "train_run",
]
