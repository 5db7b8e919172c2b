"""What the studio asks of the package: train, find cells, and rehearse both. No other module of it does."""

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from sparseshot.active import suggest_regions
from sparseshot.cells import Cells, read_cells
from sparseshot.errors import SparseshotError
from sparseshot.files import write_json
from sparseshot.images import Box, Slide, tissue_mask
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import STARTER, TrainConfig
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import look_at
from sparseshot.models.labelling import Labelling
from sparseshot.models.model_files import load_model
from sparseshot.prediction import Model, Throughput, predict_slide
from sparseshot.studio.found_cells import Area
from sparseshot.studio.marks import NEGATIVE
from sparseshot.studio.project import Project
from sparseshot.studio.project_runs import FOUND, MARKS, RUN, SUGGESTIONS, NextRegions, RunRecipe
from sparseshot.studio.slide_results import SlideResult, is_finished
from sparseshot.training.annotated import TrainingData
from sparseshot.training.mark_checks import task_of_marks
from sparseshot.training.recipe import run_data
from sparseshot.training.runs import train_run
from sparseshot.work import Event, Report, ignore

_LOG_STEPS = 5
_REGIONS, _CANDIDATES = 12, 120
_TILE_PX = 512
_MOST_VIEW_PX = 1280
"""Largest side of a part that is predicted at once because it is in view: about two seconds on two cores."""

_APART_UM = 100.0
_MARKS = 5
"""Rehearsed is a square of this many marks a side: some can be held out, as in a real run."""


def learn(project: Project, recipe: RunRecipe, folder: Path, report: Report = ignore) -> Checkpoint:
    """Train on the marks in the folder of a run, or resume that; a finished model is only loaded."""
    if not recipe.learns:
        return load_model(recipe.start)
    report(Event("preparing", message="reading the marks"))
    files = sorted((folder / MARKS).glob("*.parquet"))
    tables = [read_cells(path) for path in files]
    has_negatives = any(cells.counts().get(NEGATIVE) for cells in tables)
    labelling = Labelling(negative=(NEGATIVE,) if has_negatives else ())
    task, _ = task_of_marks([labelling.positives(cells) for cells in tables])
    config = TrainConfig(
        task=task,
        start=recipe.start if _task_of(recipe.start) == task else STARTER,
        negative_classes=labelling.negative,
        steps=recipe.steps or None,
        log_every=_LOG_STEPS,
        validations=1,
    )
    given = [project.entry(path.stem).mpp for path in files]
    mpps = tuple(project.slide(path.stem).mpp for path in files) if any(given) else (None,)
    data = TrainingData(
        pairs=tuple((project.path(path.stem), path) for path in files),
        mpp=mpps[0] if len(set(mpps)) == 1 else mpps,
        everywhere=recipe.everywhere,
        force_mpp=any(mpps),
    )
    return train_run(config, data, folder / RUN, report=report)


def _task_of(start: str) -> str | None:
    """Return the task of a model; None for one that is gone, or for a starter, which there is for each."""
    if start == STARTER:
        return None
    try:
        return load_model(start).config.task
    except SparseshotError:
        return None


def finding_model(checkpoint: Checkpoint, threshold: float) -> Model:
    """Return the model that finds cells."""
    return Model.load(checkpoint, threshold=threshold, device="cpu")


def find_cells_in_view(slide: Slide, model: Model, result: SlideResult, view: Area | None) -> None:
    """Find the cells in view and add them to the result; of a large view, where it has most tissue."""
    area = _worthwhile(slide, view or (0.0, 0.0, slide.size[0], slide.size[1]), model.mpp)
    if area is not None and not result.has_predicted(shapely.box(*area)):
        result.add_view(area, *_found_in(slide, model, area))


def _found_in(slide: Slide, model: Model, area: Area) -> tuple[Cells, NDArray[np.float32]]:
    """Find the cells of an area at once, and their features; as many weaker ones as a prediction keeps."""
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes, colors=model.colors)
    x0, y0, x1, y1 = (int(each) for each in frame.grid.from_level0(area))
    box = Box(x0, y0, x1 + 1, y1 + 1).meet(frame.grid.box)
    lowest = model.threshold / 2 if model.task.scores_whole_cells else model.threshold
    outputs = look_at(model.network, model.task, slide, frame, threshold=lowest, box=box)
    return outputs.cells_and_features


def _worthwhile(slide: Slide, view: Area, mpp: float) -> Area | None:
    """Return the part of a view to predict at once; None if it is not on the slide."""
    low, high = np.maximum(view[:2], 0), np.minimum(view[2:], slide.size)
    side = _MOST_VIEW_PX * mpp / slide.mpp
    if (high <= low).any():
        return None
    if (high - low).max() > side:
        grid = tissue_mask(slide)
        step = grid.grid.downsample
        size = np.maximum(1, np.minimum(side, high - low) / step).astype(int)
        share = uniform_filter(grid.mask.astype(np.float32), size=(size[1], size[0]), mode="constant")
        (left, top), (right, bottom) = (low // step).astype(int), np.ceil(high / step).astype(int)
        inside = share[top:bottom, left:right]
        row, column = np.unravel_index(inside.argmax(), inside.shape)
        middle = (np.array([left + column, top + row]) + 0.5) * step
        low, high = np.maximum(low, middle - side / 2), np.minimum(high, middle + side / 2)
    (x0, y0), (x1, y1) = low.tolist(), high.tolist()
    return x0, y0, x1, y1


def find_cells(
    slide: Slide, model: Model, folder: Path, *, everywhere: bool, anew: bool, report: Report
) -> None:
    """Find all cells of a slide, and write them into a folder; anew if another model began it."""

    def with_name(event: Event) -> None:
        message = f"{slide.name}: {event.values.get('cells', 0):,} cells so far"
        report(replace(event, stage="slides", message=message))

    predict_slide(
        slide,
        model,
        folder,
        throughput=Throughput(tile_px=_TILE_PX, threads=1),
        only_tissue=not everywhere,
        features=bool(model.task.kind_features),
        force=anew,
        report=with_name,
    )


class Superseded(Exception):  # noqa: N818  nothing went wrong
    """A newer run began, so that this one is no longer wanted."""


def suggest(
    folder: Path, model: Model, slides: Mapping[str, Slide], *, is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """Look for regions to mark after a run, and write them into its folder.

    Args:
        folder: of the run.
        model: of the run.
        slides: by id; the one in view first. Of two slides with one name only the first is looked at.
        is_wanted: asked now and then; False ends the search.
    """
    names = {slide.name: each for each, slide in reversed(list(slides.items()))}
    found = {name: folder / FOUND / each for name, each in names.items()}

    def report(_: Event) -> None:
        if not is_wanted():
            raise Superseded

    try:
        suggestions = suggest_regions(
            model,
            [slides[each] for each in names.values()],
            regions=_REGIONS,
            candidates=_CANDIDATES,
            learned=run_data(folder / RUN).load()[0] if (folder / RUN).is_dir() else (),
            found={name: path for name, path in found.items() if is_finished(path)},
            report=report,
        )
        known = NextRegions(tuple(replace(each, slide=names[each.slide]) for each in suggestions))
    except SparseshotError as error:
        known = NextRegions(problem=str(error))
    except Superseded:
        return
    write_json(folder / SUGGESTIONS, known)


def rehearse(project: Project, *, is_wanted: Callable[[], bool]) -> None:
    """Train for one step on invented marks and predict around them: all is then loaded and compiled.

    Args:
        project: its first slide is read.
        is_wanted: returns whether there is still time for it.
    """
    slide = next(iter(project.slides), "")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            opened = project.slide(slide)
            reach = min(_APART_UM / opened.mpp, min(opened.size) / (_MARKS + 1))
            steps = (np.arange(_MARKS) - _MARKS // 2) * reach
            x, y = np.meshgrid(*(length / 2 + steps for length in opened.size))
            marks = Cells(np.stack([x.ravel(), y.ravel()], axis=1), mpp=opened.mpp)
            (Path(folder) / MARKS).mkdir()
            marks.write(Path(folder, MARKS, f"{slide}.parquet"))
            if is_wanted():
                checkpoint = learn(project, RunRecipe(1, slide, steps=1, everywhere=True), Path(folder))
            if is_wanted():
                _found_in(opened, finding_model(checkpoint, 0.5), (x.min(), y.min(), x.max(), y.max()))
        except (SparseshotError, OSError, ValueError):
            return  # the run itself will say what is wrong
