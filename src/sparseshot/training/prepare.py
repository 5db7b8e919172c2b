"""From samples to what the loop takes: canvases to learn from, and marks kept aside."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.images import Box, Grid, TileGrid, TissueMask
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import IGNORED, BlockCache, Canvas
from sparseshot.training.config import TrainConfig
from sparseshot.training.held_out import HeldOut

HELD_OUT_SHARE = 0.15
"""Share of the marks kept aside where no validation images are given."""

_SQUARES_PX = (256, 128, 64)
_CONTEXT_PX = 64
_TISSUE_PX = 128
LARGEST_WHOLE_PX = 4096 * 4096
"""Images up to this size are looked at whole."""


def prepare(
    training: Sequence[AnnotatedSlide], validation: Sequence[AnnotatedSlide], config: TrainConfig
) -> tuple[list[Canvas], list[HeldOut]]:
    """Return the canvases and the held-out parts.

    Without validation images, some marked squares of the training images are kept from training and held out
    instead. If there are too few for that, the threshold comes from marks the model has seen, with a warning.
    """
    known = {name for item in training for name, count in item.marks.counts().items() if count}
    config.labelling.check(known)
    if not any(len(config.labelling.positives(item.marks)) for item in training):
        raise InputError("none of the images holds a mark to learn from; mark at least a few cells")
    if validation:
        canvases = [make_canvas(item, config) for item in training]
        return canvases, [part for item in validation for part in _whole(make_canvas(item, config))]
    boxes = _squares_to_hold_out([make_canvas(item, config) for item in training], config.seed)
    if not sum(map(len, boxes)):
        warnings.warn(
            "too few marks to keep any aside: the threshold is chosen on marks the model has learned, "
            "and may be too high; mark a few cells in a second place",
            TrainingWarning,
            stacklevel=2,
        )
        canvases = [make_canvas(item, config) for item in training]
        return canvases, [part for canvas in canvases for part in _about_marks(canvas)]
    canvases = [make_canvas(item, config, ignored=box) for item, box in zip(training, boxes, strict=True)]
    held_out = [
        _part(make_canvas(item, config), Box(*map(int, box)))
        for item, its_boxes in zip(training, boxes, strict=True)
        for box in its_boxes
    ]
    return canvases, held_out


def make_canvas(
    item: AnnotatedSlide, config: TrainConfig, *, ignored: NDArray[np.float64] | None = None
) -> Canvas:
    """Return the canvas of one image."""
    return Canvas(
        item.slide,
        item.marks,
        config.labelling,
        mpp=config.mpp,
        truth=item.truth,
        outlines=config.task == "segment",
        radius_um=config.mark_radius_um,
        ignored=ignored,
        tissue=None if item.tissue is None else _tissue_boxes(item.tissue, Grid.over(item.slide, config.mpp)),
    )


def _tissue_boxes(tissue: TissueMask, grid: Grid) -> NDArray[np.float64] | None:
    """Return the squares with tissue in them; None for a slide without any, where a mark may still stand."""
    tiles = TileGrid(grid.width, grid.height, _TISSUE_PX)
    row, col = np.divmod(tissue.touching(tiles, grid), tiles.columns)
    corner = np.stack([col, row], axis=1) * float(_TISSUE_PX)
    return np.concatenate([corner, corner + _TISSUE_PX], axis=1) if len(corner) else None


def _whole(canvas: Canvas) -> list[HeldOut]:
    """Take an image whole; of a slide, the marked squares."""
    if canvas.width * canvas.height <= LARGEST_WHOLE_PX:
        return [_part(canvas, canvas.grid.box)]
    return _about_marks(canvas)


def _about_marks(canvas: Canvas) -> list[HeldOut]:
    return [_part(canvas, Box(*map(int, box))) for box in _marked_squares(canvas, _SQUARES_PX[0])]


def _part(canvas: Canvas, box: Box) -> HeldOut:
    """Cut a box out with some context, which is seen but does not count."""
    seen = Box(box.x0 - _CONTEXT_PX, box.y0 - _CONTEXT_PX, box.x1 + _CONTEXT_PX, box.y1 + _CONTEXT_PX).meet(
        canvas.grid.box
    )
    patch = canvas.cut(seen, BlockCache(0))
    label = np.full_like(patch.label, IGNORED)
    core = box.within(seen)
    label[core] = patch.label[core]
    xy = canvas.points.xy[canvas.points.target > 0]
    inside = ((xy >= box[:2]) & (xy < box[2:])).all(axis=1)
    return HeldOut(patch.image, label, xy[inside] - seen[:2], canvas.grid.mpp)


def _marked_squares(canvas: Canvas, side_px: int) -> NDArray[np.float64]:
    xy = canvas.points.xy[canvas.points.target > 0]
    corner = np.unique(np.floor(xy / side_px), axis=0) * side_px
    return np.concatenate([corner, np.minimum(corner + side_px, (canvas.width, canvas.height))], axis=1)


def _squares_to_hold_out(canvases: Sequence[Canvas], seed: int) -> list[NDArray[np.float64]]:
    """Choose marked squares at random, smaller ones where the marks stand too close for large ones."""
    chosen = [np.empty((0, 4)) for _ in canvases]
    for side_px in _SQUARES_PX:
        chosen = _some_squares(canvases, [_marked_squares(canvas, side_px) for canvas in canvases], seed)
        if sum(map(len, chosen)):
            break
    return chosen


def _some_squares(
    canvases: Sequence[Canvas], squares: Sequence[NDArray[np.float64]], seed: int
) -> list[NDArray[np.float64]]:
    """Choose squares until they hold their share of the marks, leaving at least half."""
    marks = sum(int((canvas.points.target > 0).sum()) for canvas in canvases)
    order = np.random.default_rng(seed).permutation(sum(map(len, squares)))
    owner = np.repeat(np.arange(len(canvases)), [len(part) for part in squares])
    every = np.concatenate(squares)
    chosen: list[list[int]] = [[] for _ in canvases]
    held = 0
    for index in order:
        if held >= HELD_OUT_SHARE * marks:
            break
        xy = canvases[owner[index]].points.xy[canvases[owner[index]].points.target > 0]
        inside = int(((xy >= every[index, :2]) & (xy < every[index, 2:])).all(axis=1).sum())
        if held + inside <= marks / 2:
            chosen[owner[index]].append(index)
            held += inside
    return [every[rows] if rows else np.empty((0, 4)) for rows in chosen]
