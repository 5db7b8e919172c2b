"""Coverage of the 90 % intervals of `sparseshot quality`, in simulation.

A model scores cells and other things; some of the cells are marked, and some of the marks held out. The
threshold is calibrated on these marks, as in training. The truth is the model's on all cells.
"""

from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.calibration import MODELS, Model
from benchmarks.timing import print_table
from sparseshot.metrics import calibrate_threshold
from sparseshot.metrics.quality_estimate import Evidence, expected_quality
from sparseshot.metrics.score_histogram import ScoreHistogram

MARKS = (15, 40, 120, 400)
SHARES = (0.1, 0.3, 0.7)
DRAWS = 4
FIRST_SEED = 100
"""Seeds 0 and 1 of the models of the other benchmark served to choose how far below the threshold to look."""

OTHERS = (
    Model("others score unevenly", (2.0, 1.0), (-4.0, 2.5)),
    Model("crowded by what resembles cells", (1.5, 1.5), (-1.5, 1.0), others_per_cell=2, missed=0.1),
    Model("dim and rare", (0.5, 1.0), (-4.5, 1.2), others_per_cell=30, dim=0.1),
)
"""Models on which nothing was chosen."""

NAMES = ("recall", "precision", "f1", "cells")


def inside(model: Model, marks: int, share: float, seed: int, *, exhaustive: bool = False) -> list[bool]:
    """Return for each figure whether its interval holds the truth."""
    random = np.random.default_rng([seed, marks, int(100 * share)])
    cells, others = model.draw(random)
    # The marks lie in a part of the tissue, in which the share of marked cells is as everywhere.
    near = random.random(len(cells)) < min(1.0, marks / (share * len(cells)))
    near_others = random.random(len(others)) < near.mean()
    marked = near & (random.random(len(cells)) < share)
    if not marked.any():
        return []
    held_out, everything = cells[marked], np.concatenate([cells[near & (cells > 0)], others[near_others]])
    of_marks, of_all = ScoreHistogram.of(held_out), ScoreHistogram.of(everything)
    threshold = calibrate_threshold(
        of_marks, of_all, prior=0.5 if model.name in {"good", "poor"} else None
    ).threshold
    evidence = Evidence(of_marks, of_all, len(held_out))
    if exhaustive:
        size = marks / len(cells)
        where, where_others = random.random(len(cells)) < size, random.random(len(others)) < size
        found = np.concatenate([cells[where & (cells > 0)], others[where_others]])
        evidence = replace(
            evidence, certain_marks=ScoreHistogram.of(cells[where]), certain_all=ScoreHistogram.of(found)
        )
    quality = expected_quality(evidence, threshold)
    if quality is None:
        return []
    hits, wrong = int((cells >= threshold).sum()), int((others >= threshold).sum())
    recall, precision = hits / len(cells), hits / (hits + wrong)
    low, high = quality.cells(hits + wrong)[1:]
    return [
        quality.recall.low <= recall <= quality.recall.high,
        quality.precision.low <= precision <= quality.precision.high,
        quality.f1.low <= 2 * precision * recall / (precision + recall) <= quality.f1.high,
        low <= len(cells) <= high,
    ]


def main() -> None:
    rows = []
    total = []
    for model, exhaustive in product((*MODELS, *OTHERS), (False, True)):
        cases = [
            inside(model, marks, share, seed, exhaustive=exhaustive)
            for marks, share, seed in product(MARKS, SHARES, range(FIRST_SEED, FIRST_SEED + DRAWS))
        ]
        known = np.array([case for case in cases if case])
        total.append(known)
        where = " with exhaustive regions" if exhaustive else ""
        rows.append([model.name + where, len(known), *(f"{each:.0%}" for each in known.mean(axis=0))])
    chosen = 2 * len(MODELS)
    for name, parts in (
        ("all, sparse marks alone", total[::2]),
        ("all, with exhaustive regions", total[1::2]),
        ("models on which nothing was chosen, sparse marks alone", total[chosen::2]),
    ):
        everything = np.concatenate(parts)
        rows.append([name, len(everything), *(f"{each:.0%}" for each in everything.mean(axis=0))])
    print_table(["90 % intervals that hold the truth", "cases", *NAMES], rows)
