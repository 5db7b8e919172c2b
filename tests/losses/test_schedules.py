import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseshot.errors import InputError
from sparseshot.losses import Constant, Linear, Logistic, Ramp, Schedule, Sigmoid

SCHEDULES: list[Schedule] = [
    Constant(0.5),
    Constant(1.0),
    Linear(),
    Sigmoid(),
    Sigmoid(-1000.0),
    Logistic(height=0.5, centre=0.5, width=1e-3),
    Logistic(height=1.0, centre=-2.0, width=0.1),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(progress=st.floats(0.0, 1.0))
def test_every_schedule_gives_a_threshold(schedule: Schedule, progress: float) -> None:
    assert 0.0 < schedule(progress) <= 1.0


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def test_values() -> None:
    assert Linear(0.8)(0.5) == pytest.approx(0.4)
    assert [Sigmoid()(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([0.5, sigmoid(0.375), sigmoid(0.75)])
    # The authors anneal over 300 epochs: 0.5·σ((epoch − 50) / 10).
    annealing = Logistic(height=0.5, centre=50 / 300, width=10 / 300)
    for epoch in (0, 50, 73, 300):
        assert annealing(epoch / 300) == pytest.approx(0.5 * sigmoid((epoch - 50) / 10), rel=1e-9)


def test_schedules_are_values() -> None:
    assert Linear(0.75) == Linear()
    assert len({Sigmoid(), Sigmoid(0.75), Sigmoid(0.5)}) == 2
    with pytest.raises(AttributeError):
        Linear().top = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (Constant, {"rho": 0.0}),
        (Constant, {"rho": 1.5}),
        (Linear, {"top": -1.0}),
        (Sigmoid, {"slope": math.inf}),
        (Logistic, {"height": 2.0, "centre": 0.5, "width": 0.1}),
        (Logistic, {"height": 0.5, "centre": math.nan, "width": 0.1}),
        (Logistic, {"height": 0.5, "centre": 0.5, "width": 0.0}),
        (Ramp, {"start": -1.0, "end": 1.0}),
    ],
)
def test_bad_parameters_raise(make: Any, arguments: dict[str, float]) -> None:
    with pytest.raises(InputError, match="give"):
        make(**arguments)
