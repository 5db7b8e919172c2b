"""Training from annotated slides: crops, the loop, checkpoints, thresholds, evaluation."""

from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainConfig, TrainSettings, make_config
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.evaluation import Evaluation, evaluate
from sparseshot.training.loop import train
from sparseshot.training.recipe import TrainRecipe, TrainRequest, WeakSupervision, resolve
from sparseshot.training.runs import perform, train_run

__all__ = [
    "AnnotatedSlide",
    "Checkpoint",
    "Evaluation",
    "TrainConfig",
    "TrainRecipe",
    "TrainRequest",
    "TrainSettings",
    "TrainingData",
    "WeakSupervision",
    "evaluate",
    "make_config",
    "perform",
    "resolve",
    "train",
    "train_run",
]
