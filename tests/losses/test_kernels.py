"""The polynomials of the kernel against NumPy in double precision."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from sparseshot.losses import kernels


def over(function: Any) -> Callable[[np.ndarray], np.ndarray]:
    @njit(error_model="numpy")
    def fill(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = function(x[i])

    def apply(x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        fill(x, y)
        return y.astype(np.float64)

    return apply


@pytest.mark.parametrize(
    ("ours", "exact", "points", "tolerance"),
    [
        (kernels.exp, np.exp, np.linspace(-87, 0, 200_001), 1e-7),
        (
            kernels.log1p,
            np.log1p,
            np.concatenate([np.geomspace(1e-37, 1, 100_001), np.linspace(0, 1, 1001)]),
            3e-7,
        ),
        (kernels.log, np.log, np.linspace(1.01, 1000, 200_001), 3e-7),
    ],
)
def test_accuracy(ours: Any, exact: Any, points: np.ndarray, tolerance: float) -> None:
    x = points.astype(np.float32)
    np.testing.assert_allclose(over(ours)(x), exact(x.astype(np.float64)), rtol=tolerance, atol=0)


def test_edges() -> None:
    edges = np.array([0.0, -87.1, -1e4, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(over(kernels.exp)(edges), [1.0, 0.0, 0.0, 0.0, np.nan])
    np.testing.assert_array_equal(over(kernels.log)(np.array([1.0, np.nan], np.float32)), [0.0, np.nan])
    np.testing.assert_array_equal(over(kernels.log1p)(np.array([0.0, np.nan], np.float32)), [0.0, np.nan])
