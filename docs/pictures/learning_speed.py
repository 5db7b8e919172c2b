"""Draw learning_speed.svg for docs/theory.md: ``python docs/pictures/learning_speed.py [FILE]``."""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparseshot.experiments.report.figures import STYLE, as_svg

Curve = NDArray[np.float64]

RHO_AT_START, RHO_AT_END = 0.5, 0.679


def unannotated_acceleration(p: Curve) -> Curve:
    """Return d²L/dt² of L = −log(1 − p) under gradient flow of the logit."""
    return 2 * p**3 * (1 - p)


def marked_acceleration(p: Curve) -> Curve:
    """Return d²L/dt² of L = −log p under gradient flow of the logit."""
    return 2 * p * (1 - p) ** 3


def unannotated_slope(p: Curve, *, alpha: float, gamma: float) -> Curve:
    """Return dL/dz of L = −α p^γ log(1 − p)."""
    return alpha * p**gamma * (p - gamma * (1 - p) * np.log1p(-p))


def draw(file: Path) -> None:
    """Draw both panels."""
    mpl.rcParams.update(STYLE)
    p = np.linspace(1e-6, 1 - 1e-6, 401)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(p, unannotated_acceleration(p), color="C3", label="taken for background: $2p^3(1-p)$")
    left.plot(p, marked_acceleration(p), color="C0", label="marked: $2p(1-p)^3$")
    left.set(title="how fast learning speeds up", ylabel=r"$d^2L/dt^2$", ylim=(0, 0.3))
    right.plot(p, unannotated_slope(p, alpha=1.0, gamma=0.0), color="C3", label="preset plain")
    right.plot(
        p, unannotated_slope(p, alpha=0.2, gamma=0.1), color="C3", linestyle="--", label="preset paper"
    )
    right.plot(p, 1 - p, color="C0", label="marked, upwards")
    right.set(title="how hard a location pulls", ylabel=r"$|dL/dz|$", ylim=(0, 1.3))
    for axes in (left, right):
        axes.axvspan(RHO_AT_START, 1, color="0.5", alpha=0.12, linewidth=0)
        axes.axvspan(RHO_AT_END, 1, color="0.5", alpha=0.2, linewidth=0, label="excluded, first and last")
        axes.set(xlabel="p, probability of foreground", xlim=(0, 1))
        axes.legend(loc="upper left", fontsize="x-small", frameon=False)
    file.write_bytes(as_svg(figure))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg"))
