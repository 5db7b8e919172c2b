"""Kinds of a run: marks for finding, and marks for telling found cells apart."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.cells import Cells
from sparseshot.errors import InputError, TrainingWarning
from sparseshot.images import Box, Grid
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.kinds import kind_targets, learn_kinds, with_one_spelling
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.held_out import LARGEST_WHOLE_PX, squares_around

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
    features, targets = [], []
    for item, marks in zip(slides, tables, strict=True):
        for cells, own in found_with_features(module, checkpoint, item):
            features.append(own)
            targets.append(kind_targets(cells, marks, kinds))
    try:
        head = learn_kinds(
            np.concatenate(features), np.concatenate(targets), kinds, seed=checkpoint.config.seed
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
