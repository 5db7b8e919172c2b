"""The price in clicks: a simulated annotator marks, trains and corrects."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sparseshot.active.annotator import Annotation, Opportunity, first_marks, spend
from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.experiments.experiment import SYNTHETIC, Run
from sparseshot.files import make_folder, read_as, replacing, write_json
from sparseshot.images import Box, Grid, open_slide
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import STARTER, TrainSettings
from sparseshot.models.model_files import load_start
from sparseshot.prediction.model import Model
from sparseshot.training.annotated import AnnotatedSlide, TrainingData
from sparseshot.training.evaluation import evaluate
from sparseshot.training.held_out import certainty_of, prepare
from sparseshot.training.lineage import MarkChanges, Start
from sparseshot.training.loop import train
from sparseshot.training.pseudo_labels import find_pseudo_labels, with_pseudo_labels
from sparseshot.training.recipe import TrainRequest, resolve
from sparseshot.work import Report, ignore
from sparseshot.work.folder import MODEL, ROUNDS

FIRST_CLICKS = 20
_GROWTH = 3
_ROUND = "round.json"
_SYNTHETIC_SEED, _SYNTHETIC_PX = 5, 1200


def click_budgets(most: float) -> list[int]:
    """Return the numbers of clicks after which a model is trained.

    >>> click_budgets(540), click_budgets(100)
    ([20, 60, 180, 540], [20, 60, 100])
    """
    budgets = [FIRST_CLICKS]
    while budgets[-1] < int(most):
        budgets.append(min(budgets[-1] * _GROWTH, int(most)))
    return budgets


def spend_clicks(
    run: Run, root: Path | None, folder: Path, report: Report = ignore
) -> tuple[Checkpoint, list[dict[str, Any]]]:
    """Run or resume an experiment; return its last model and the record of each round.

    A round is a function of the one before, so that a killed run repeats no finished training.
    """
    known, test = _slides(run, root, folder)
    annotation = first_marks(known, FIRST_CLICKS, seed=run.seed)
    checkpoint: Checkpoint | None = None
    before, records = 0, []
    for number, budget in enumerate(click_budgets(run.fraction)):
        if checkpoint is not None:
            random = np.random.default_rng([run.seed, number])
            given = Opportunity(Model.load(checkpoint, device="cpu"), budget - annotation.clicks, random)
            annotation = spend(annotation, run.method.policy, given)
        config = round_settings(run, annotation, checkpoint, new_marks=annotation.marks - before)
        before = annotation.marks
        place = folder / ROUNDS / str(number)
        checkpoint, record = _round(config, checkpoint, annotation, test, place, report=report)
        records.append(record)
    assert checkpoint is not None, "there is at least one round"
    return checkpoint, records


def round_settings(
    run: Run, annotation: Annotation, parent: Checkpoint | None, *, new_marks: int
) -> TrainSettings:
    """Return the settings of a round: as of any run from the same start."""
    config, marks = run.config(), [item.marks for item in annotation.slides]
    if parent is None:
        model = load_start(config.start or STARTER, run.task)
        start = None
        if model is not None:
            start = Start(model, certainty=certainty_of(model, config, annotation.slides))
    else:
        config = replace(config, start=str(parent.path))
        start = Start(parent, is_run=True, changes=MarkChanges(new=new_marks))
    recipe, _ = resolve(TrainRequest(config, TrainingData(run.subject.dataset)), marks, start)
    return recipe.settings


def _round(
    config: TrainSettings,
    parent: Checkpoint | None,
    annotation: Annotation,
    test: Sequence[AnnotatedSlide],
    folder: Path,
    *,
    report: Report,
) -> tuple[Checkpoint, dict[str, Any]]:
    """Train and evaluate one round."""
    if (folder / _ROUND).is_file():
        return Checkpoint.load(folder / MODEL), read_as(folder / _ROUND, dict[str, Any])
    begun = time.perf_counter()
    marked = [replace(item, truth=None) for item in annotation.slides]  # training must not see it
    labelled = marked
    if parent is not None:
        labelled = with_pseudo_labels(marked, find_pseudo_labels(parent, marked, config), config)
    checkpoint = train(config, *prepare(labelled, [], config, by_people=marked), folder, report=report)
    trained = time.perf_counter()
    record = asdict(evaluate(checkpoint, test)) | {
        "clicks": annotation.clicks,
        "marks": annotation.marks,
        "regions": sum(len(item.marks.regions) for item in annotation.slides),
        "steps": config.steps,
        "seconds": trained - begun,
    }
    write_json(folder / _ROUND, record)
    return checkpoint, record


def _slides(run: Run, root: Path | None, folder: Path) -> tuple[list[AnnotatedSlide], list[AnnotatedSlide]]:
    """Return the slides to mark and those to test on."""
    if run.subject.dataset == SYNTHETIC:
        return _synthetic_halves(folder / "slides")
    known, _ = run.subject.source(root, fraction=1.0, seed=run.seed).load()
    return known, run.subject.test_images(root)


def _synthetic_halves(folder: Path) -> tuple[list[AnnotatedSlide], list[AnnotatedSlide]]:
    """Return one half of a synthetic slide to mark, and the other to test on."""
    side = _SYNTHETIC_PX
    tissue = SyntheticTissue(_SYNTHETIC_SEED, size_px=(2 * side, side), mpp=0.5, tissue_fraction=1.0)
    make_folder(folder)
    halves = []
    for name, box in (("marked", Box(0, 0, side, side)), ("tested", Box(side, 0, 2 * side, side))):
        path = folder / f"{name}.png"
        if not path.is_file():
            with replacing(path) as temporary:
                Image.fromarray(tissue.read(Grid.over(tissue), box)).save(temporary, format="PNG")
        xy = tissue.cells((box.x0, box.y0, box.x1, box.y1)).xy - box[:2]
        cells = Cells(xy, mpp=tissue.mpp)
        halves.append([AnnotatedSlide(open_slide(path, mpp=tissue.mpp), cells, truth=cells)])
    return halves[0], halves[1]
