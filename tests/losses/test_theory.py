"""The closed forms of docs/theory.md against automatic differentiation."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from docs.pictures import learning_speed
from torch import Tensor

from sparseshot.losses import exclusive_cross_entropy


def unannotated(z: Tensor, *, alpha: float = 1.0, gamma: float = 0.0) -> Tensor:
    return exclusive_cross_entropy(
        z.reshape(-1, 1),
        torch.zeros(z.numel(), dtype=torch.long),
        rho=1.0,
        alpha=alpha,
        gamma=gamma,
        reduction="sum",
    )


def marked(z: Tensor) -> Tensor:
    return exclusive_cross_entropy(
        z.reshape(-1, 1), torch.ones(z.numel(), dtype=torch.long), rho=1.0, reduction="sum"
    )


CASES = [
    (unannotated, learning_speed.unannotated_acceleration),
    (marked, learning_speed.marked_acceleration),
]


@pytest.mark.parametrize(("loss", "closed_form"), CASES)
def test_second_derivative_in_time_by_automatic_differentiation(
    loss: Callable[[Tensor], Tensor], closed_form: Callable[[np.ndarray], np.ndarray]
) -> None:
    z = torch.linspace(-8.0, 8.0, 101, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(z), z, create_graph=True)
    speed = -(slope**2)  # dL/dt, because dz/dt = −dL/dz
    (by_z,) = torch.autograd.grad(speed.sum(), z)
    acceleration = by_z * -slope.detach()
    np.testing.assert_allclose(
        acceleration, closed_form(torch.sigmoid(z).detach().numpy()), rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize(("loss", "closed_form"), CASES)
def test_second_derivative_in_time_by_following_the_flow(
    loss: Callable[[Tensor], Tensor], closed_form: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Three losses on a path of gradient flow, a short time apart; their second difference."""
    h, slope = 0.01, cast(Callable[[Tensor], Tensor], torch.func.grad(loss))

    def flow(z: Tensor, time: float) -> Tensor:
        """Take one step of Runge and Kutta's fourth order along dz/dt = −dL/dz."""
        first = -slope(z)
        second = -slope(z + time / 2 * first)
        third = -slope(z + time / 2 * second)
        fourth = -slope(z + time * third)
        return z + time / 6 * (first + 2 * second + 2 * third + fourth)

    for start in (-2.0, -0.3, 0.0, 1.1, 3.0):
        z = torch.tensor(start, dtype=torch.float64)
        before, now, after = (float(loss(flow(z, t))) for t in (-h, 0.0, h))
        p = np.array(1 / (1 + math.exp(-start)))
        assert (before - 2 * now + after) / h**2 == pytest.approx(float(closed_form(p)), rel=1e-3)


def test_slope_of_the_unannotated_part() -> None:
    z = torch.linspace(-30.0, 8.0, 101, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(unannotated(z, alpha=0.2, gamma=0.1), z)
    p = torch.sigmoid(z).detach().numpy()
    np.testing.assert_allclose(slope, learning_speed.unannotated_slope(p, alpha=0.2, gamma=0.1), rtol=1e-9)


def test_figures_in_the_text() -> None:
    p = np.linspace(0, 1, 100_001)
    speed = learning_speed.unannotated_acceleration(p)
    assert p[speed.argmax()] == pytest.approx(3 / 4, abs=1e-4)
    assert p[learning_speed.marked_acceleration(p).argmax()] == pytest.approx(1 / 4, abs=1e-4)
    assert np.trapezoid(speed, p) == pytest.approx(1 / 10, abs=1e-6)
    for rho, share in ((0.5, 0.81), (0.679, 0.51)):
        above = p >= rho
        assert 10 * np.trapezoid(speed[above], p[above]) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(
    ("c", "alpha", "expected"), [(0.6, 0.2, 0.88), (0.3, 0.2, 0.68), (0.1, 0.2, 0.36), (0.1, 0.05, 0.69)]
)
def test_where_the_pulls_balance(c: float, alpha: float, expected: float) -> None:
    balance = c / (c + alpha * (1 - c))
    assert balance == pytest.approx(expected, abs=0.005)
    z = torch.logit(torch.tensor(balance, dtype=torch.float64)).requires_grad_()
    (pull,) = torch.autograd.grad(c * marked(z) + (1 - c) * unannotated(z, alpha=alpha), z)
    assert abs(pull.item()) < 1e-12


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    learning_speed.draw(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
