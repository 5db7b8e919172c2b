"""Schedules of the exclusion threshold ρ, or of its exponent β, over training progress t in [0, 1].

A schedule is any function from progress to a number; these are frozen values with a formula.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from sparseshot.losses.parameters import FINITE, NOT_NEGATIVE, POSITIVE, SHARE, Range, check_fields

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
