"""Canvases to learn from, and held-out marks."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import TrainingWarning
from sparseshot.images import Box, Grid, TileGrid, TissueMask
from sparseshot.models.config import TrainConfig
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache, Canvas
from sparseshot.training.held_out import HeldOut
from sparseshot.training.mark_checks import check_marks

HELD_OUT_SHARE = 0.15
"""Share of the marks held out where there are no validation images."""

_SQUARES_PX = (256, 128, 64)
_TISSUE_PX = 128
LARGEST_WHOLE_PX = 4096 * 4096
"""Largest image that is held out whole, or predicted whole in rounds of weak supervision."""


def prepare(
    training: Sequence[AnnotatedSlide],
    validation: Sequence[AnnotatedSlide],
    config: TrainConfig,
    *,
    by_people: Sequence[AnnotatedSlide] | None = None,
) -> tuple[list[Canvas], list[HeldOut]]:
    """Return the canvases and the held-out parts.

    Without validation images, some marked squares of the training images are kept from training and held out
    instead. If there are too few for that, the threshold comes from marks the model has seen, with a warning.

    Args:
        training: slides to learn from.
        validation: slides to hold out.
        config: of the run.
        by_people: the training slides without the marks that a model added; None: it added none. Only these
            are held out, because a model agrees with its own marks.
    """
    by_people = training if by_people is None else by_people
    check_marks([item.marks for item in training], config.labelling)
    if validation:
        held_out = [part for item in validation for part in whole(item, config)]
        return [make_canvas(item, config) for item in training], held_out
    marked = [make_canvas(item, config) for item in by_people]
    boxes = _squares_to_hold_out(marked, config.seed)
    ignored, seen = boxes or [[] for _ in training], not boxes
    if seen:
        warnings.warn(
            "too few marks to hold any out: the threshold is chosen on marks the model was trained on, "
            "and may be too high; mark a few cells in a second place",
            TrainingWarning,
            stacklevel=2,
        )
        boxes = [_marked_squares(canvas, _SQUARES_PX[0]) for canvas in marked]
    canvases = [make_canvas(item, config, ignored=own) for item, own in zip(training, ignored, strict=True)]
    held_out = [
        part
        for item, canvas, own in zip(by_people, marked, boxes, strict=True)
        for part in _parts(item, canvas, own, seen=seen)
    ]
    return canvases, held_out


def make_canvas(
    item: AnnotatedSlide,
    config: TrainConfig,
    *,
    ignored: Sequence[Box] = (),
    kinds: tuple[str, ...] = (),
    unsure_um: float = 0.0,
    weight: float = 1.0,
) -> Canvas:
    """Return the canvas of one image; the options are those of :class:`Canvas`."""
    task = config.make_task()
    return Canvas(
        item.slide,
        item.marks,
        config.labelling,
        mpp=config.mpp,
        truth=item.truth,
        outlines=task.paints_marks,
        radius_um=config.mark_radius_um,
        negative_margin_px=task.stride // 2,  # every location whose cell could be found there
        ignored=ignored,
        kinds=kinds,
        unsure_um=unsure_um,
        weight=weight,
        tissue=None if item.tissue is None else _tissue_boxes(item.tissue, Grid.over(item.slide, config.mpp)),
    )


def _tissue_boxes(tissue: TissueMask, grid: Grid) -> NDArray[np.float64] | None:
    """Return the squares with tissue in them; None for a slide without any, where marks may still be."""
    tiles = TileGrid(grid.width, grid.height, _TISSUE_PX)
    row, col = np.divmod(tissue.touching(tiles, grid), tiles.columns)
    corner = np.stack([col, row], axis=1) * float(_TISSUE_PX)
    return np.concatenate([corner, corner + _TISSUE_PX], axis=1) if len(corner) else None


def whole(item: AnnotatedSlide, config: TrainConfig) -> list[HeldOut]:
    """Hold out a whole image; of a slide, the marked squares."""
    canvas = make_canvas(item, config)
    is_slide = canvas.width * canvas.height > LARGEST_WHOLE_PX
    boxes = _marked_squares(canvas, _SQUARES_PX[0]) if is_slide else [canvas.grid.box]
    return _parts(item, canvas, boxes, seen=False)


def _parts(item: AnnotatedSlide, canvas: Canvas, boxes: Sequence[Box], *, seen: bool) -> list[HeldOut]:
    xy, cache = canvas.points.xy[canvas.points.target > 0], BlockCache(0)
    parts = ((box, canvas.cut(box, cache), xy[_inside(xy, box)]) for box in boxes)
    return [HeldOut(item, box, patch.label, own, seen) for box, patch, own in parts]


def _inside(xy: NDArray[np.float64], box: Box) -> NDArray[np.bool_]:
    return np.asarray(((xy >= box[:2]) & (xy < box[2:])).all(axis=1))


def _marked_squares(canvas: Canvas, side_px: int) -> list[Box]:
    return squares_around(canvas.points.xy[canvas.points.target > 0], canvas.grid, side_px)


def squares_around(xy: NDArray[np.float64], grid: Grid, side_px: int) -> list[Box]:
    """Divide a grid into squares, and return those that hold a place; places are in pixels of the grid."""
    corners = np.unique(np.floor(xy / side_px), axis=0).astype(int) * side_px
    return [Box(x, y, x + side_px, y + side_px).meet(grid.box) for x, y in corners.tolist()]


def _squares_to_hold_out(canvases: Sequence[Canvas], seed: int) -> list[list[Box]]:
    """Choose marked squares of each canvas at random, as large as the marks allow; none if too few."""
    for side_px in _SQUARES_PX:
        chosen = _some_squares(canvases, side_px, seed)
        if any(chosen):
            return chosen
    return []


def _some_squares(canvases: Sequence[Canvas], side_px: int, seed: int) -> list[list[Box]]:
    """Choose squares until they hold their share of the marks, leaving at least half of each class."""
    points = [canvas.points for canvas in canvases]
    marks = [(each.xy[each.target > 0], each.target[each.target > 0]) for each in points]
    total = np.bincount(np.concatenate([target for _, target in marks]))
    every = [(k, box) for k, canvas in enumerate(canvases) for box in _marked_squares(canvas, side_px)]
    chosen: list[list[Box]] = [[] for _ in canvases]
    held = np.zeros_like(total)
    for place in np.random.default_rng(seed).permutation(len(every)):
        index, box = every[place]
        xy, target = marks[index]
        with_box = held + np.bincount(target[_inside(xy, box)], minlength=len(total))
        if held.sum() < HELD_OUT_SHARE * total.sum() and (with_box <= total / 2).all():
            chosen[index].append(box)
            held = with_box
    return chosen
