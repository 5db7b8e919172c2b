"""Schedules of the exclusion threshold ρ, or of its exponent β, over training progress t in [0, 1].

A schedule is any function from progress to a number; these are frozen values with a formula.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin

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


Schedule = Callable[[float], float]
"""From progress in [0, 1] to the exclusion threshold, or to another parameter."""

SMALLEST_RHO = 1e-9
"""Lower bound of a schedule: a threshold of 0 would exclude everything, whatever the model predicts."""


def value_at(
    schedule: Schedule | float, progress: float, *, name: str = "rho", within: Range = SHARE
) -> float:
    """Return the value of a schedule, or of a constant, at this progress.

    >>> value_at(0.5, 0.3), value_at(Linear(), 0.5)
    (0.5, 0.375)
    """
    value = schedule(progress) if callable(schedule) else schedule
    within.check(name, value)
    return value


def _sigmoid(x: float) -> float:
    # As tanh, because torch.compile keeps tanh symbolic, while exp would freeze one progress into the graph.
    return max(0.5 + 0.5 * math.tanh(0.5 * x), SMALLEST_RHO)


class _Formula:
    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Constant(_Formula):
    """ρ(t) = ρ."""

    rho: Annotated[float, SHARE]

    def __call__(self, progress: float) -> float:  # noqa: ARG002
        """Return ρ."""
        return self.rho


@dataclass(frozen=True)
class Linear(_Formula):
    """ρ(t) = top · t, at least :data:`SMALLEST_RHO`: the paper's "linear" row.

    >>> Linear()(0.5)
    0.375
    """

    top: Annotated[float, SHARE] = 0.75

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return max(self.top * progress, SMALLEST_RHO)


@dataclass(frozen=True)
class Sigmoid(_Formula):
    """ρ(t) = σ(slope · t): the paper's "sigmoid" row as printed, from 0.50 to 0.68.

    >>> round(Sigmoid()(0), 3), round(Sigmoid()(1), 3)
    (0.5, 0.679)
    """

    slope: Annotated[float, FINITE] = 0.75

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return _sigmoid(self.slope * progress)


@dataclass(frozen=True)
class Logistic(_Formula):
    """ρ(t) = height · σ((t − centre) / width), as in the authors' code, there in epochs of 300.

    >>> round(Logistic(height=0.5, centre=50 / 300, width=10 / 300)(50 / 300), 3)
    0.25
    """

    height: Annotated[float, SHARE]
    centre: Annotated[float, FINITE]
    width: Annotated[float, FINITE, POSITIVE]

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return self.height * _sigmoid((progress - self.centre) / self.width)


@dataclass(frozen=True)
class Ramp(_Formula):
    """From ``start`` to ``end`` in a straight line, both at least 0: for β, whose annealing the paper names.

    With a constant ρ the threshold ρ^β rises as β falls: at first much is excluded, in the end little.

    >>> ramp = Ramp(start=2.0, end=0.5)
    >>> ramp(0.0), ramp(0.5), ramp(1.0)
    (2.0, 1.25, 0.5)
    """

    start: Annotated[float, NOT_NEGATIVE]
    end: Annotated[float, NOT_NEGATIVE]

    def __call__(self, progress: float) -> float:
        """Return the value at this progress."""
        return self.start + (self.end - self.start) * progress
