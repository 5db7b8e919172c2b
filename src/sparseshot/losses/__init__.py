"""Exclusive cross-entropy and its rivals, all behind ``loss(logits, target, annotated=None, progress=1.0)``.

Each loss is a pure function and an ``nn.Module`` that holds its parameters; docs/losses.md says which to use
when.

>>> import torch
>>> from sparseshot.losses import ExclusiveCrossEntropy
>>> logits = torch.zeros(2, 1, 8, 8, requires_grad=True)
>>> target = torch.zeros(2, 8, 8, dtype=torch.long)
>>> target[0, 3:5, 3:5] = 1  # the one cell that somebody marked
>>> ExclusiveCrossEntropy()(logits, target, progress=0.1).backward()
"""

from sparseshot.losses.adaptive import AdaptiveExclusiveCrossEntropy, estimate_marked_share
from sparseshot.losses.early_learning import (
    EarlyLearningRegularisation,
    EmaTeacher,
    early_learning_regularisation,
)
from sparseshot.losses.exclusion import excluded_share, exclusion_mask, warn_of_runaway
from sparseshot.losses.exclusive import ExclusiveCrossEntropy, exclusive_cross_entropy
from sparseshot.losses.focal import (
    BackgroundRecalibration,
    FocalLoss,
    background_recalibration,
    focal_loss,
)
from sparseshot.losses.huber import HuberLoss, huber_loss
from sparseshot.losses.ordinary import (
    AnnotatedOnly,
    CrossEntropy,
    Oracle,
    annotated_only,
    cross_entropy,
    oracle,
)
from sparseshot.losses.positive_unlabelled import NonNegativePU, estimate_prior, non_negative_pu
from sparseshot.losses.registry import LOSSES, SCHEDULES, make_loss
from sparseshot.losses.schedules import Constant, Linear, Logistic, Schedule, Sigmoid
from sparseshot.losses.signature import Call, Hints, Loss
from sparseshot.losses.targets import foreground_logit

__all__ = [
    "LOSSES",
    "SCHEDULES",
    "AdaptiveExclusiveCrossEntropy",
    "AnnotatedOnly",
    "BackgroundRecalibration",
    "Call",
    "Constant",
    "CrossEntropy",
    "EarlyLearningRegularisation",
    "EmaTeacher",
    "ExclusiveCrossEntropy",
    "FocalLoss",
    "Hints",
    "HuberLoss",
    "Linear",
    "Logistic",
    "Loss",
    "NonNegativePU",
    "Oracle",
    "Schedule",
    "Sigmoid",
    "annotated_only",
    "background_recalibration",
    "cross_entropy",
    "early_learning_regularisation",
    "estimate_marked_share",
    "estimate_prior",
    "excluded_share",
    "exclusion_mask",
    "exclusive_cross_entropy",
    "focal_loss",
    "foreground_logit",
    "huber_loss",
    "make_loss",
    "non_negative_pu",
    "oracle",
    "warn_of_runaway",
]
