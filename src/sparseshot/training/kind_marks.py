"""Kinds of a run: marks for finding, and marks for telling found cells apart."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.cells import Cells
from sparseshot.errors import InputError, TrainingWarning, counted
from sparseshot.images import Box, Grid, Slide
from sparseshot.images.pixel_size import SAME_MPP
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.device import find_device
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import features_at
from sparseshot.models.kind_head import side_by_side
from sparseshot.models.kinds import MarkedCells, kind_targets, learn_kinds, with_one_spelling
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.held_out import LARGEST_WHOLE_PX, squares_around
from sparseshot.work import Report, ignore

_SQUARE_PX, _MOST_SQUARES = 1024, 64
"""Of a slide, found cells around marks are learned from, in squares."""


def for_finding(item: AnnotatedSlide, settings: TrainSettings) -> AnnotatedSlide:
    """Return a slide with the marks that say "here is a cell".

    Who names kinds rejects a cell, or completes a region, for these kinds. So neither says that there is no
    cell, and both teach kinds only.
    """
    marks = item.marks[settings.labelling.targets(item.marks) > 0]
    return replace(item, marks=replace(marks, regions=np.empty(0, object), region_notes=None))


def with_kinds(
    checkpoint: Checkpoint, slides: Sequence[AnnotatedSlide], *, network: nn.Module | None = None
) -> Checkpoint:
    """Return a model that tells the kinds of the cells it finds, learned from the marks of slides.

    Where no mark is near a found cell, it is returned as it is, with a warning.
    """
    module, kinds = checkpoint.network(network), checkpoint.config.classes
    tables = with_one_spelling([item.marks for item in slides], spelling=kinds)
    features, targets, places = [], [], []
    for item, marks in zip(slides, tables, strict=True):
        for cells, own in found_with_features(module, checkpoint, item):
            features.append(own)
            targets.append(kind_targets(cells, marks, kinds))
            places.append(cells.xy * item.slide.mpp)
    try:
        head = learn_kinds(
            np.concatenate(features),
            np.concatenate(targets),
            kinds,
            um=side_by_side(places),
            seed=checkpoint.config.seed,
        )
    except InputError as error:
        warnings.warn(f"cells are found, but not told apart: {error}", TrainingWarning, stacklevel=2)
        return checkpoint
    return replace(checkpoint, kinds=head)


def found_with_features(
    network: nn.Module, checkpoint: Checkpoint, item: AnnotatedSlide
) -> list[tuple[Cells, NDArray[np.float32]]]:
    """Return what a model finds in an image, or around the marks of a slide, with features."""
    grid, threshold = Grid.over(item.slide, checkpoint.mpp), checkpoint.threshold or 0.5
    boxes: Sequence[Box | None] = [None]
    if grid.width * grid.height > LARGEST_WHOLE_PX:
        squares = squares_around(grid.from_level0(item.marks.xy), grid, _SQUARE_PX)
        boxes = squares[:: -(-len(squares) // _MOST_SQUARES) or 1]
    return [
        item.look_at(network, checkpoint.config, threshold=threshold, box=box).cells_and_features
        for box in boxes
    ]


def classify_cells(
    slide: Slide,
    cells: Cells,
    marks: Cells,
    model: Checkpoint,
    *,
    device: str = "auto",
    report: Report = ignore,
) -> Cells:
    """Return cells that any program found, with kinds learned from marks.

    Classes and colours are new, and the probabilities of the kinds are added to the measurements; all else
    stays as it is. Cells of no marked kind become :data:`~sparseshot.models.kinds.OTHER`.

    Args:
        slide: the slide.
        cells: on it, in level-0 pixels.
        marks: with class names, in level-0 pixels.
        model: whose features tell kinds apart, such as the starter.
        device: ``auto``, or a name that PyTorch knows.
        report: receives progress events.
    """
    if not model.config.kind_features:
        raise InputError(
            f"{model.path}: this model has no features to tell kinds apart by; give the starter, or a "
            "run that began with it"
        )
    _check_places(slide, cells)
    placed = replace(cells, mpp=slide.mpp)
    marked = MarkedCells.of(placed, replace(marks, mpp=slide.mpp))  # complains before the slide is read
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=("cell",))
    network = model.network().to(find_device(device))
    features = features_at(network, model.config.make_task(), slide, frame, cells.xy, report=report)
    head = marked.learn(features, seed=model.config.seed)
    return replace(head.assign(placed, features), mpp=cells.mpp)


def _check_places(slide: Slide, cells: Cells) -> None:
    """Raise if cells are in pixels of another size, or beside the slide."""
    if cells.mpp is not None and not math.isclose(cells.mpp, slide.mpp, rel_tol=SAME_MPP):
        raise InputError(
            f"the cells are of a slide with {cells.mpp:g} µm per pixel, and {slide.name} has {slide.mpp:g}; "
            "give the cells of this slide, or the right --mpp"
        )
    outside = ~((cells.xy >= 0) & (cells.xy <= slide.size)).all(axis=1)
    if outside.any():
        (width, height), (x, y) = slide.size, cells.xy[outside][0]
        raise InputError(
            f"{outside.sum():,} of {counted(len(cells), 'cell')} lie outside {slide.name}, which has "
            f"{width:,} × {height:,} pixels; the first is at ({x:.0f}, {y:.0f}); give the cells of this "
            "slide, in its pixels"
        )
