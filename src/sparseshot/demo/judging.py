"""Scores of each loss against every cell of the slide, which only a synthetic slide has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.demo.demo_folder import FULL, DemoFolder, LossFolder
from sparseshot.experiments.experiment import LOSS_TITLES
from sparseshot.experiments.performing import machine
from sparseshot.experiments.results import LOG
from sparseshot.files import read_as
from sparseshot.metrics import Matching, f1_score, match_cells, scored_hits
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.prediction import read_prediction
from sparseshot.training.checkpoint import versions
from sparseshot.training.logs import numbers_of, read_log
from sparseshot.training.starting import load_model

CURVE_THRESHOLDS = np.append(LOWEST_SCORE, np.arange(2, 99) / 100)
"""Thresholds of the F1 curve."""


@dataclass(frozen=True, eq=False)
class OperatingCells:
    """Cells predicted at one threshold, matched with the true ones."""

    threshold: float
    cells: Cells
    matching: Matching

    def scores(self, marked: NDArray[np.bool_]) -> dict[str, float | None]:
        """Return scores and counts; ``marked`` selects the true cells that were marked."""
        counts = self.matching.counts
        return {
            "threshold": self.threshold,
            "f1": counts.f1,
            "precision": counts.precision if len(self.cells) else None,
            "recall": counts.recall,
            "recall_unmarked": float(np.sum(~marked[self.matching.truth]) / np.sum(~marked)),
            "found": counts.tp,
            "missed": counts.fn,
            "false": counts.fp,
        }


@dataclass(frozen=True, eq=False)
class JudgedLoss:
    """One loss, cell by cell.

    Attributes:
        points: at threshold 0.5 (``half``), and at the one chosen from held-out marks (``calibrated``).
        f1: at each of :data:`CURVE_THRESHOLDS`.
        log: of the training.
    """

    points: Mapping[str, OperatingCells]
    f1: NDArray[np.float64]
    log: list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class Judged:
    """The content of ``numbers.json``, and the cells shown in the pictures."""

    numbers: dict[str, Any]
    truth: Cells
    marks: Cells
    losses: Mapping[str, JudgedLoss]


def judge(folder: DemoFolder, *, seconds: float, resumed: bool) -> Judged:
    """Compare the prediction of each loss with the ground truth."""
    plan = folder.plan
    truth, marks = read_cells(folder.truth), read_cells(folder.marks)
    marked = plan.is_marked(truth)
    losses, numbers = {}, {}
    for loss in plan.losses:
        own = folder.of_loss(loss)
        losses[loss] = one = _judge_loss(own, truth)
        numbers[loss] = {
            "title": LOSS_TITLES[loss].capitalize(),
            **{name: point.scores(marked) for name, point in one.points.items()},
            **_training(one.log, batch=plan.config(loss).batch),
            **read_as(own.speed, dict[str, Any]),
        }
    tissue = plan.tissue()
    return Judged(
        {
            "quick": plan.steps < FULL.steps,
            "slide_px": list(tissue.size),
            "mpp": tissue.mpp,
            "cells": len(truth),
            "marks": len(marks),
            "losses": numbers,
            "seconds": seconds,
            "resumed": resumed,
            "machine": machine(),
            "versions": versions(),
        },
        truth,
        marks,
        losses,
    )


def _judge_loss(own: LossFolder, truth: Cells) -> JudgedLoss:
    # Suppression keeps the highest scores first, so candidates above a threshold are what is found there.
    candidates = read_prediction(own.candidates)
    threshold = load_model(own.run).threshold
    assert threshold is not None, "there are always marks to hold out"
    assert candidates.score is not None
    assert truth.mpp is not None
    hits = scored_hits(truth.xy, candidates.xy, candidates.score, radius=MATCH_RADIUS_UM / truth.mpp)
    f1 = f1_score(*hits.counts_at(CURVE_THRESHOLDS).T)
    half = candidates[candidates.score >= np.float32(0.5)]  # the precision of stored scores
    found = {"half": (0.5, half), "calibrated": (threshold, read_prediction(own.found))}
    points = {
        name: OperatingCells(at, cells, match_cells(truth, cells, radius_um=MATCH_RADIUS_UM))
        for name, (at, cells) in found.items()
    }
    return JudgedLoss(points, f1, read_log(own.run / LOG))


def _training(log: list[dict[str, str]], *, batch: int) -> dict[str, float | None]:
    """Return the speed of training, and the excluded share at its end; None if the loss excludes nothing."""
    steps = np.diff([0, *(int(line["step"]) for line in log)])
    seconds = float(np.sum(batch * steps / numbers_of(log, "crops_per_second")))
    shares = numbers_of(log, "excluded")
    return {
        "excluded": shares[-1] if shares else None,
        "training_seconds": seconds,
        "crops_per_second": batch * int(steps.sum()) / seconds,
    }
