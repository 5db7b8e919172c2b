"""Checks of the parameters of losses."""

import sys
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from sparseshot.errors import InputError


def check_share(name: str, value: float, *, zero: bool = False) -> None:
    """Raise unless ``value`` is in (0, 1], or in [0, 1] with ``zero``."""
    if not (0.0 < value <= 1.0 or (zero and value == 0.0)):
        raise InputError(f"{name} is {value}; give a number in {'[' if zero else '('}0, 1]")


def check_inside(name: str, value: float) -> None:
    """Raise unless ``value`` is in (0, 1)."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{name} is {value}; give a number between 0 and 1")


def check_not_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number of at least 0."""
    if not 0 <= value <= sys.float_info.max:  # an int may be larger
        raise InputError(f"{name} is {value}; give a finite number of at least 0")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise unless ``value`` is one of a ``Literal``'s."""
    if value not in get_args(choices):
        raise InputError(f"{name} is {value!r}; choose one of {', '.join(get_args(choices))}")


def class_weight_tensor(class_weights: Sequence[float] | Tensor | None) -> Tensor | None:
    """Return the weights in float32; raise unless there are at least two, finite and none negative."""
    if class_weights is None:
        return None
    weights = torch.as_tensor(class_weights, dtype=torch.float32)
    if weights.ndim != 1 or len(weights) < 2 or not (weights.isfinite() & (weights >= 0)).all():
        raise InputError(
            f"class_weights are {weights.tolist()}; give one finite number of at least 0 for background "
            "and for each class"
        )
    return weights
