"""Exclusive cross-entropy and its baselines, all with one signature (:class:`Loss`).

docs/losses.md explains which to use when.

>>> import torch
>>> from sparseshot.losses import ExclusiveCrossEntropy
>>> logits = torch.zeros(2, 1, 8, 8, requires_grad=True)
>>> target = torch.zeros(2, 8, 8, dtype=torch.long)
>>> target[0, 3:5, 3:5] = 1  # the only marked cell
>>> ExclusiveCrossEntropy()(logits, target, progress=0.1).backward()
"""

from sparseshot.losses.adaptive import AdaptiveExclusiveCrossEntropy
from sparseshot.losses.base import Loss
from sparseshot.losses.baselines import (
    AnnotatedOnly,
    BackgroundRecalibration,
    CrossEntropy,
    FocalLoss,
    HuberLoss,
    Oracle,
)
from sparseshot.losses.exclusive import ExclusiveCrossEntropy, exclusive_cross_entropy
from sparseshot.losses.locations import Hints, Locations, foreground_logit
from sparseshot.losses.logit_histograms import estimate_marked_share
from sparseshot.losses.positive_unlabelled import NonNegativePU, estimate_prior
from sparseshot.losses.registry import LOSSES, SCHEDULES, make_loss
from sparseshot.losses.schedules import Constant, Linear, Logistic, Ramp, Schedule, Sigmoid
from sparseshot.losses.teacher import Distillation, EarlyLearningRegularisation, EmaTeacher
from sparseshot.losses.threshold import excluded_share, warn_of_runaway

__all__ = [
    "LOSSES",
    "SCHEDULES",
    "AdaptiveExclusiveCrossEntropy",
    "AnnotatedOnly",
    "BackgroundRecalibration",
    "Constant",
    "CrossEntropy",
    "Distillation",
    "EarlyLearningRegularisation",
    "EmaTeacher",
    "ExclusiveCrossEntropy",
    "FocalLoss",
    "Hints",
    "HuberLoss",
    "Linear",
    "Locations",
    "Logistic",
    "Loss",
    "NonNegativePU",
    "Oracle",
    "Ramp",
    "Schedule",
    "Sigmoid",
    "estimate_marked_share",
    "estimate_prior",
    "excluded_share",
    "exclusive_cross_entropy",
    "foreground_logit",
    "make_loss",
    "warn_of_runaway",
]
