"""Scores of each loss against every cell of the slide, which only a synthetic slide has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.demo.demo_folder import DemoFolder, LossFolder
from sparseshot.demo.demo_plan import FULL
from sparseshot.experiments.experiment import LOSS_TITLES
from sparseshot.experiments.performing import machine
from sparseshot.experiments.results import LOG
from sparseshot.files import read_as
from sparseshot.metrics import Counts, f1_score, match_points, scored_hits
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.prediction import read_prediction
from sparseshot.training.checkpoint import versions
from sparseshot.training.logs import numbers_of, read_log
from sparseshot.training.runs import run_checkpoint

THRESHOLDS = np.append(LOWEST_SCORE, np.arange(2, 99) / 100)
"""Thresholds of the F1 curve."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Predicted cells at one threshold, matched with the true ones.

    Attributes:
        threshold: lowest score of a predicted cell.
        found: ``(N,)`` whether each true cell was found.
        xy: ``(M, 2)`` predicted cells.
        correct: ``(M,)`` whether each of them is a true cell.
    """

    threshold: float
    found: NDArray[np.bool_]
    xy: NDArray[np.float64]
    correct: NDArray[np.bool_]

    def scores(self, marked: NDArray[np.bool_]) -> dict[str, float | None]:
        """Return scores and counts; ``marked`` tells which true cells were marked."""
        counts = Counts(tp=int(self.found.sum()), fp=int((~self.correct).sum()), fn=int((~self.found).sum()))
        return {
            "threshold": self.threshold,
            "f1": counts.f1,
            "precision": counts.precision if len(self.xy) else None,
            "recall": counts.recall,
            "recall_unmarked": float(self.found[~marked].mean()),
            "found": counts.tp,
            "missed": counts.fn,
            "false": counts.fp,
        }


@dataclass(frozen=True, eq=False)
class JudgedLoss:
    """One loss, cell by cell.

    Attributes:
        half: at threshold 0.5.
        calibrated: at the threshold chosen from held-out marks.
        f1: at each of :data:`THRESHOLDS`.
        log: of the training.
    """

    half: Verdict
    calibrated: Verdict
    f1: NDArray[np.float64]
    log: list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class Judged:
    """The content of ``numbers.json``, and what the pictures show."""

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
            "half": one.half.scores(marked),
            "calibrated": one.calibrated.scores(marked),
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
    threshold = run_checkpoint(own.run).threshold
    assert threshold is not None, "there are always marks to hold out"
    assert candidates.score is not None
    hits = scored_hits(truth.xy, candidates.xy, candidates.score, radius=_radius(truth))
    f1 = f1_score(*hits.counts_at(THRESHOLDS).T)
    half, calibrated = verdict(truth, candidates, 0.5), verdict(truth, read_prediction(own.found), threshold)
    return JudgedLoss(half, calibrated, f1, read_log(own.run / LOG))


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


def verdict(truth: Cells, candidates: Cells, threshold: float) -> Verdict:
    """Match the candidates at or above a threshold with the true cells."""
    assert candidates.score is not None
    xy = candidates.xy[candidates.score >= np.float32(threshold)]  # the precision of stored scores
    matching = match_points(truth.xy, xy, radius=_radius(truth))
    found, correct = np.zeros(len(truth), np.bool_), np.zeros(len(xy), np.bool_)
    found[matching.truth], correct[matching.found] = True, True
    return Verdict(threshold, found, xy, correct)


def _radius(truth: Cells) -> float:
    assert truth.mpp is not None
    return MATCH_RADIUS_UM / truth.mpp
