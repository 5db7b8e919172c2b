"""Marks kept from training, and the operating point chosen from them alone.

A model trained on a fraction of the marks assigns a true cell about that fraction as its probability, so a
fixed threshold of one half means nothing. Held-out marks give recall; the share of locations above a
threshold needs no marks; the quotient recall² / P(predicted positive) is highest where F1 is (Lee & Liu
2003), and needs no negatives.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sparseshot.errors import TrainingWarning
from sparseshot.images import Box, Grid, TileGrid, TissueMask
from sparseshot.metrics import Calibration, Evidence, Interval, ScoreHistogram, calibrate_threshold
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainConfig, TrainSettings
from sparseshot.models.finder import LOWEST_SCORE
from sparseshot.models.inference import CONTEXT_PX, WindowOutputs
from sparseshot.models.task import IGNORED
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache, Canvas
from sparseshot.training.mark_checks import check_marks

HELD_OUT_SHARE = 0.15
"""Share of the marks held out where there are no validation images."""

_SQUARES_PX = (256, 128, 64)
_TISSUE_PX = 128
_CERTAINTY_SQUARES = 40
LARGEST_WHOLE_PX = 4096 * 4096
"""Largest image that is held out whole, or predicted whole in rounds of weak supervision."""


@dataclass(frozen=True)
class HeldOut:
    """A box of a slide whose marks are kept from training.

    Attributes:
        item: the slide.
        box: in pixels of the working resolution.
        label: ``(H, W)`` int16, as in :class:`~sparseshot.training.canvas.Patch`; ignored ones do not count.
        xy: ``(K, 2)`` places of the positive marks, in pixels of the working resolution.
        seen: there were too few marks to keep these from training.
    """

    item: AnnotatedSlide
    box: Box
    label: NDArray[np.int16]
    xy: NDArray[np.float64]
    seen: bool = False


def gather_evidence(
    network: nn.Module,
    config: TrainSettings,
    held_out: Sequence[HeldOut],
    *,
    prior: float | None = None,
    spread: float | None = None,
) -> tuple[Evidence, Calibration] | None:
    """Score held-out marks and everything found around them, and choose the threshold; None without marks.

    Args:
        network: to score with.
        config: of the run.
        held_out: the marks.
        prior: the threshold that the loss is built for, if any.
        spread: of the best threshold about the prior; None: as for losses in general.
    """
    if not any(len(part.xy) for part in held_out):
        return None
    evidence, regions = Evidence(), []
    for part in held_out:
        region = part.item.look_at(network, config, threshold=LOWEST_SCORE, box=part.box, halo_px=CONTEXT_PX)
        marked, everything = region.finder.mark_scores(region.window, region.parts, part.label, part.xy)
        places = int((part.label > IGNORED).sum()) // config.make_task().stride ** 2
        evidence += Evidence(
            ScoreHistogram.of(marked),
            ScoreHistogram.of(everything),
            len(part.xy),
            places,
            held_out=not part.seen,
        )
        regions.append(region)
    evidence = replace(evidence, marks=min(evidence.marks, evidence.of_marks.total))
    chosen = calibrate_threshold(
        evidence.of_marks,
        evidence.of_all,
        marks=evidence.marks,
        places=evidence.places,
        prior=prior,
        spread=spread,
    )
    # Outlines change with the threshold; detections at a higher one are some of those at a lower.
    only_at = chosen.threshold if config.make_task().paints_marks else None
    for part, region in zip(held_out, regions, strict=True):
        evidence += _hits(part, region, config, LOWEST_SCORE if only_at is None else only_at)
    return replace(evidence, only_at=only_at, interval=Interval(chosen.low, chosen.high)), chosen


def _hits(part: HeldOut, region: WindowOutputs, config: TrainSettings, threshold: float) -> Evidence:
    """Compare the cells that are found at a threshold with the held-out marks."""
    finder = replace(region.finder, threshold=threshold)  # type: ignore[type-var]  # finders are dataclasses
    found, _ = finder.settle(finder.find(region.window, region.parts), next_y0=math.inf)
    low, high = region.frame.grid.to_level0(part.box).reshape(2, 2)
    marks = config.labelling.positives(part.item.marks)
    marks = marks[((marks.xy >= low) & (marks.xy < high)).all(axis=1)]
    return Evidence.of_cells(found, marks, part.item.marks.regions)


def prepare(
    training: Sequence[AnnotatedSlide],
    validation: Sequence[AnnotatedSlide],
    config: TrainSettings,
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
    config: TrainSettings,
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
        heights=config.heights,
        weight=weight,
        tissue=None if item.tissue is None else _tissue_boxes(item.tissue, Grid.over(item.slide, config.mpp)),
    )


def _tissue_boxes(tissue: TissueMask, grid: Grid) -> NDArray[np.float64] | None:
    """Return the squares with tissue in them; None for a slide without any, where marks may still be."""
    tiles = TileGrid(grid.width, grid.height, _TISSUE_PX)
    row, col = np.divmod(tissue.touching(tiles, grid), tiles.columns)
    corner = np.stack([col, row], axis=1) * float(_TISSUE_PX)
    return np.concatenate([corner, corner + _TISSUE_PX], axis=1) if len(corner) else None


def whole(item: AnnotatedSlide, config: TrainSettings) -> list[HeldOut]:
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


def certainty_of(model: Checkpoint, config: TrainConfig, slides: Sequence[AnnotatedSlide]) -> float:
    """Return the mean probability that a model gives marks of slides, or of their pixels; 0 without any.

    A sample is enough, of :data:`_CERTAINTY_SQUARES` squares.
    """
    settings = replace(
        model.config,
        classes=config.classes or (),
        negative_classes=config.negative_classes,
        by_kind=len(config.classes or ()) > 1,  # a starter has one logit, for any cell
        mpp=config.mpp or model.mpp,
        mark_radius_um=config.mark_radius_um,
    )
    canvases = [make_canvas(item, settings) for item in slides]
    every = [(k, box) for k, canvas in enumerate(canvases) for box in _marked_squares(canvas, _SQUARES_PX[1])]
    chosen = np.random.default_rng(0).permutation(len(every))[:_CERTAINTY_SQUARES]
    network = model.network()
    scores: list[NDArray[np.floating]] = [np.empty(0)]
    for k, box in (every[place] for place in chosen):
        (part,) = _parts(slides[k], canvases[k], [box], seen=False)
        region = part.item.look_at(network, settings, threshold=LOWEST_SCORE, box=box, halo_px=CONTEXT_PX)
        scores.append(region.finder.mark_scores(region.window, region.parts, part.label, part.xy)[0])
    marked = np.concatenate(scores)
    return float(marked.mean()) if len(marked) else 0.0
