"""Schedules of the exclusion threshold ρ over training progress t in [0, 1].

A schedule is any function from progress to a number; these are frozen values with a formula.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from sparseshot.errors import InputError
from sparseshot.losses.parameters import check_share

Schedule = Callable[[float], float]
"""From progress in [0, 1] to the exclusion threshold."""

SMALLEST_RHO = 1e-9
"""Lower bound of a schedule: a threshold of 0 would exclude everything, whatever the model predicts."""


def value_at(schedule: Schedule | float, progress: float) -> float:
    """Return the value of a schedule, or of a constant, at this progress.

    >>> value_at(0.5, 0.3), value_at(Linear(), 0.5)
    (0.5, 0.375)
    """
    return schedule(progress) if callable(schedule) else Constant(schedule)(progress)


def _sigmoid(x: float) -> float:
    # As tanh, because torch.compile keeps tanh symbolic, while exp would freeze one progress into the graph.
    return max(0.5 + 0.5 * math.tanh(0.5 * x), SMALLEST_RHO)


@dataclass(frozen=True)
class Constant:
    """ρ(t) = ρ."""

    rho: float

    def __post_init__(self) -> None:
        check_share("rho", self.rho)

    def __call__(self, progress: float) -> float:  # noqa: ARG002
        """Return ρ."""
        return self.rho


@dataclass(frozen=True)
class Linear:
    """ρ(t) = top · t, at least :data:`SMALLEST_RHO`: the paper's "linear" row.

    >>> Linear()(0.5)
    0.375
    """

    top: float = 0.75

    def __post_init__(self) -> None:
        check_share("top", self.top)

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return max(self.top * progress, SMALLEST_RHO)


@dataclass(frozen=True)
class Sigmoid:
    """ρ(t) = σ(slope · t): the paper's "sigmoid" row as printed, from 0.50 to 0.68.

    >>> round(Sigmoid()(0), 3), round(Sigmoid()(1), 3)
    (0.5, 0.679)
    """

    slope: float = 0.75

    def __post_init__(self) -> None:
        if not math.isfinite(self.slope):
            raise InputError(f"slope is {self.slope}; give a finite number")

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return _sigmoid(self.slope * progress)


@dataclass(frozen=True)
class Logistic:
    """ρ(t) = height · σ((t − centre) / width), as in the authors' code, there in epochs of 300.

    >>> round(Logistic(height=0.5, centre=50 / 300, width=10 / 300)(50 / 300), 3)
    0.25
    """

    height: float
    centre: float
    width: float

    def __post_init__(self) -> None:
        check_share("height", self.height)
        if not (math.isfinite(self.centre) and math.isfinite(self.width) and self.width > 0):
            raise InputError(
                f"centre is {self.centre} and width {self.width}; give finite parts of training, "
                "the width above 0"
            )

    def __call__(self, progress: float) -> float:
        """Return ρ at this progress."""
        return self.height * _sigmoid((progress - self.centre) / self.width)
