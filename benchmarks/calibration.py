"""The calibrated threshold in simulation: F1 lost against the best threshold, for few marks and many."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import print_table
from sparseshot.metrics import calibrate_threshold
from sparseshot.metrics.threshold import THRESHOLDS, ScoreHistogram

MARKS = (5, 10, 20, 50, 200)
DRAWS = 60


@dataclass(frozen=True)
class Model:
    """How a model scores: mean and spread of the logit of cells and of everything else it finds.

    ``missed`` is the share of cells it does not find at any score, ``dim`` the share it scores like the rest.
    """

    name: str
    cells: tuple[float, float]
    others: tuple[float, float]
    others_per_cell: int = 4
    missed: float = 0.0
    dim: float = 0.0

    def draw(self, random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the scores of 2000 cells, and of everything else."""
        logits = random.normal(*self.cells, 2000)
        dim = random.random(2000) < self.dim
        logits[dim] = random.normal(*self.others, dim.sum())
        logits[random.random(2000) < self.missed] = -np.inf
        others = random.normal(*self.others, 2000 * self.others_per_cell)
        return 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-others))


MODELS = (
    Model("good", (1.0, 1.2), (-3.0, 1.5)),
    Model("poor", (0.0, 1.5), (-2.0, 1.5)),
    Model("trained on one mark in fifty", (-4.0, 1.0), (-8.0, 1.5), missed=0.05),
    Model("overconfident", (4.0, 3.0), (-6.0, 2.5), others_per_cell=10, missed=0.02),
    Model("cells are rare", (1.0, 1.2), (-4.0, 1.5), others_per_cell=50),
    Model("every fifth cell looks like background", (2.0, 1.0), (-3.0, 1.5), dim=0.2),
)


def plain_threshold(marks: NDArray[np.float64], everything: NDArray[np.float64]) -> float:
    """Maximise recall² / P(predicted positive) as it stands."""
    recall = ScoreHistogram.of(marks).at_least()[1:] / len(marks)
    predicted = np.maximum(ScoreHistogram.of(everything).at_least()[1:], 1)
    return float(THRESHOLDS[1:][np.argmax(recall**2 / predicted)])


def losses(model: Model, marks: int, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    cells, others = model.draw(random)
    everything = np.concatenate((cells[cells > 0], others))
    held_out = random.choice(cells, marks, replace=False)

    tp = ScoreHistogram.of(cells).at_least()[1:]
    f1 = 2 * tp / (ScoreHistogram.of(everything).at_least()[1:] + len(cells))
    chosen = (plain_threshold(held_out, everything), calibrate_threshold(held_out, everything).threshold)
    plain, calibrated = (float(f1.max() - f1[np.searchsorted(THRESHOLDS[1:], q)]) for q in chosen)
    return plain, calibrated


def main() -> None:
    rows = []
    for model in MODELS:
        means = [np.mean([losses(model, marks, seed) for seed in range(DRAWS)], axis=0) for marks in MARKS]
        rows.append([model.name, *(f"{plain:.3f} → {calibrated:.3f}" for plain, calibrated in means)])
    print_table(["F1 lost: plain → calibrate_threshold", *(f"{marks} marks" for marks in MARKS)], rows)
