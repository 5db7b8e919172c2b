"""Checks of the parameters of losses."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sparseshot.errors import InputError


def check_share(name: str, value: float) -> None:
    """Raise unless ``value`` is in (0, 1]."""
    if not 0.0 < value <= 1.0:
        raise InputError(f"{name} is {value}; give a number in (0, 1]")


def check_not_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value}; give a finite number of at least 0")


def checked_class_weights(class_weights: Sequence[float] | Tensor | None) -> Tensor | None:
    """Return the weights as float32 tensor; raise unless there are at least two, finite and none negative."""
    if class_weights is None:
        return None
    weights = torch.as_tensor(class_weights, dtype=torch.float32)
    if weights.ndim != 1 or len(weights) < 2 or not (weights.isfinite() & (weights >= 0)).all():
        raise InputError(
            f"class_weights are {weights.tolist()}; give one finite number of at least 0 for background "
            "and for each class"
        )
    return weights
