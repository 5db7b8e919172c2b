"""Ranges of the parameters of losses and schedules, stated in the types of their fields."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from sparseshot.errors import InputError


@dataclass(frozen=True)
class Range:
    """A range of numbers: what to give, and whether a number is in it.

    ``alpha: Annotated[float, SHARE]`` is a field that :func:`check_fields` checks.
    """

    text: str
    contains: Callable[[float], bool]

    def check(self, name: str, value: float) -> None:
        """Raise unless a number is in the range."""
        if not self.contains(value):
            raise InputError(f"{name} is {value}; give {self.text}")


_LARGEST = sys.float_info.max  # an int may be larger

SHARE = Range("a number in (0, 1]", lambda x: 0.0 < x <= 1.0)
SHARE_OR_ZERO = Range("a number in [0, 1]", lambda x: 0.0 <= x <= 1.0)
INSIDE = Range("a number between 0 and 1", lambda x: 0.0 < x < 1.0)
NOT_NEGATIVE = Range("a finite number of at least 0", lambda x: 0.0 <= x <= _LARGEST)
POSITIVE = Range("a number above 0", lambda x: x > 0.0)
FINITE = Range("a finite number", lambda x: -_LARGEST <= x <= _LARGEST)
STEPS = Range("a number of steps, at least 1", lambda x: x >= 1)


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise unless ``value`` is one of a ``Literal``'s."""
    if value not in get_args(choices):
        raise InputError(f"{name} is {value!r}; choose one of {', '.join(get_args(choices))}")


def check_fields(owner: Any) -> None:
    """Raise unless every field of a dataclass is in the range or among the choices of its type, or None."""
    for item in fields(owner):
        value = getattr(owner, item.name)
        if get_origin(item.type) is Literal:
            check_choice(item.name, value, item.type)
        for rule in getattr(item.type, "__metadata__", ()) if value is not None else ():
            rule.check(item.name, value)


def check_class_weights(weights: Tensor) -> None:
    """Raise unless there are at least two weights, finite and none negative."""
    if weights.ndim != 1 or len(weights) < 2 or not (weights.isfinite() & (weights >= 0)).all():
        raise InputError(
            f"class_weights are {weights.tolist()}; give one finite number of at least 0 for background "
            "and for each class"
        )


def class_weight_tensor(class_weights: Sequence[float] | Tensor | None) -> Tensor | None:
    """Return checked weights in float32."""
    if class_weights is None:
        return None
    weights = torch.as_tensor(class_weights, dtype=torch.float32)
    check_class_weights(weights)
    return weights
