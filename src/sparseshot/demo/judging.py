"""What was found, missed and made up: against every cell there is, which only a made slide can tell."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.demo.folder import DemoFolder, LossFolder
from sparseshot.demo.plan import FULL
from sparseshot.experiments.folders import LOG, read_json
from sparseshot.experiments.performing import machine
from sparseshot.experiments.plan import LOSS_TITLES
from sparseshot.metrics import Counts, f1_score, match_points, scored_hits
from sparseshot.prediction import read_prediction
from sparseshot.training.checkpoint import versions
from sparseshot.training.held_out import LOWEST_SCORE, MATCH_RADIUS_UM
from sparseshot.training.logs import numbers_of, read_log
from sparseshot.training.runs import run_checkpoint

THRESHOLDS = np.append(LOWEST_SCORE, np.arange(2, 99) / 100)
"""Where F1 is drawn."""


@dataclass(frozen=True)
class Score:
    """One loss at one threshold.

    Attributes:
        threshold: from which probability on something was a cell.
        f1: of all cells of the slide, within 3 µm.
        precision: None where nothing was found.
        recall: of all cells.
        recall_unmarked: of those that nobody marked.
        found: cells found.
        missed: cells missed.
        false: places found where no cell is.
    """

    threshold: float
    f1: float
    precision: float | None
    recall: float
    recall_unmarked: float
    found: int
    missed: int
    false: int


@dataclass(frozen=True)
class LossNumbers:
    """What one loss came to.

    Attributes:
        title: its name for people.
        half: at threshold 0.5.
        calibrated: at the threshold chosen from held-out marks.
        excluded: share of the unannotated locations left out at the end of training; None where none ever is.
        training_seconds: spent learning.
        crops_per_second: learned from.
        predicted_mm2_per_second: of tissue; None where it was not measured, after a resume.
    """

    title: str
    half: Score
    calibrated: Score
    excluded: float | None
    training_seconds: float
    crops_per_second: float
    predicted_mm2_per_second: float | None


@dataclass(frozen=True)
class Numbers:
    """All numbers of the page.

    Attributes:
        quick: this was the quick demo, which shows that everything works, not how well.
        slide_px: width and height of the slide.
        mpp: µm of its pixels.
        cells: on the slide.
        marks: given.
        losses: by short name.
        seconds: from the call that finished it to the drawing of the page.
        resumed: an earlier call had done a part.
        machine: it was done on.
        versions: it was done with.
    """

    quick: bool
    slide_px: tuple[int, int]
    mpp: float
    cells: int
    marks: int
    losses: Mapping[str, LossNumbers]
    seconds: float
    resumed: bool
    machine: Mapping[str, Any]
    versions: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What became of each cell at one threshold.

    Attributes:
        hit: ``(N,)`` whether each true cell was found.
        xy: ``(M, 2)`` what was found.
        right: ``(M,)`` whether that is a cell.
    """

    hit: NDArray[np.bool_]
    xy: NDArray[np.float64]
    right: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class JudgedLoss:
    """One loss, cell by cell.

    Attributes:
        half: at threshold 0.5.
        calibrated: at the calibrated threshold.
        f1: at each of :data:`THRESHOLDS`.
        log: of the training.
    """

    half: Verdict
    calibrated: Verdict
    f1: NDArray[np.float64]
    log: list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class Judged:
    """The numbers, and what the pictures show."""

    numbers: Numbers
    truth: Cells
    marks: Cells
    losses: Mapping[str, JudgedLoss]


def judge(folder: DemoFolder, *, seconds: float, resumed: bool) -> Judged:
    """Compare what each loss found with every cell there is."""
    plan = folder.plan
    truth, marks = read_cells(folder.truth), read_cells(folder.marks)
    marked = plan.is_marked(truth)
    losses, told = {}, {}
    for loss in plan.losses:
        losses[loss], told[loss] = _judge_loss(
            folder.of_loss(loss),
            truth,
            marked,
            title=LOSS_TITLES[loss].capitalize(),
            batch=plan.config(loss).batch,
        )
    tissue = plan.tissue()
    numbers = Numbers(
        quick=plan.steps < FULL.steps,
        slide_px=tissue.size,
        mpp=tissue.mpp,
        cells=len(truth),
        marks=len(marks),
        losses=told,
        seconds=seconds,
        resumed=resumed,
        machine=machine(),
        versions=versions(),
    )
    return Judged(numbers, truth, marks, losses)


def _judge_loss(
    own: LossFolder, truth: Cells, marked: NDArray[np.bool_], *, title: str, batch: int
) -> tuple[JudgedLoss, LossNumbers]:
    # Suppression goes from the surest down: what it leaves above a threshold is what is found there.
    candidates = read_prediction(own.candidates)
    chosen = run_checkpoint(own.run).threshold
    assert chosen is not None, "there are always marks to hold out"
    half, calibrated = verdict(truth, candidates, 0.5), verdict(truth, read_prediction(own.found), chosen)
    assert candidates.score is not None
    assert truth.mpp is not None
    hits = scored_hits(truth.xy, candidates.xy, candidates.score, radius=MATCH_RADIUS_UM / truth.mpp)
    curve = f1_score(*hits.counts_at(THRESHOLDS).T)
    log = read_log(own.run / LOG)
    rates = numbers_of(log, "crops_per_second")
    steps = np.diff([0, *(int(line["step"]) for line in log)])
    shares = numbers_of(log, "excluded")
    training_seconds = float(np.sum(batch * steps / rates))
    numbers = LossNumbers(
        title=title,
        half=score(half, 0.5, marked),
        calibrated=score(calibrated, chosen, marked),
        excluded=shares[-1] if shares else None,
        training_seconds=training_seconds,
        crops_per_second=batch * int(steps.sum()) / training_seconds,
        predicted_mm2_per_second=read_json(own.speed)["predicted_mm2_per_second"],
    )
    return JudgedLoss(half, calibrated, curve, log), numbers


def verdict(truth: Cells, candidates: Cells, threshold: float) -> Verdict:
    """Tell what became of each cell at a threshold."""
    assert candidates.score is not None
    assert truth.mpp is not None
    xy = candidates.xy[candidates.score >= np.float32(threshold)]  # as the scores are kept
    matching = match_points(truth.xy, xy, radius=MATCH_RADIUS_UM / truth.mpp)
    hit, right = np.zeros(len(truth), np.bool_), np.zeros(len(xy), np.bool_)
    hit[matching.truth], right[matching.found] = True, True
    return Verdict(hit, xy, right)


def score(seen: Verdict, threshold: float, marked: NDArray[np.bool_]) -> Score:
    """Count a verdict."""
    counts = Counts(tp=int(seen.hit.sum()), fp=int((~seen.right).sum()), fn=int((~seen.hit).sum()))
    return Score(
        threshold=threshold,
        f1=counts.f1,
        precision=counts.precision if len(seen.xy) else None,
        recall=counts.recall,
        recall_unmarked=float(seen.hit[~marked].mean()),
        found=counts.tp,
        missed=counts.fn,
        false=counts.fp,
    )
