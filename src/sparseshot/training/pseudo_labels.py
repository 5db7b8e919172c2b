"""Predictions that are learned as marks.

In a run that goes on, confident predictions of the model that it continues. People who correct a
model mark the cells it missed and reject its false predictions. Then only its errors are labelled, and it
unlearns the cells that it found. So for each certain negative outside reviewed regions, two confident
predictions that nobody rejected become marks.

In weak supervision, as in the paper's table 1, those of the round before.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray
from torch import nn

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cells.near import is_inside, is_near
from sparseshot.errors import InputError
from sparseshot.images import Grid
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.inference import CONTEXT_PX
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.canvas import BlockCache
from sparseshot.training.held_out import LARGEST_WHOLE_PX, make_canvas, squares_around

PER_NEGATIVE = 2
LEAST_SCORE = 0.9
_FOLDER = "pseudo_labels"
_SQUARE_PX, _MOST_SQUARES = 256, 48
"""Predictions are sought in squares around certain negatives: what somebody has looked at."""


def find_pseudo_labels(
    parent: Checkpoint, slides: Sequence[AnnotatedSlide], config: TrainSettings
) -> list[Cells]:
    """Return confident predictions on each slide; none in segmentation, or where there are no negatives.

    Args:
        parent: the model that was corrected.
        slides: with the marks people made.
        config: of the run that continues it.
    """
    names = config.labelling.names
    nothing = [Cells(np.empty((0, 2)), classes=names, mpp=item.slide.mpp) for item in slides]
    negatives = [_negatives_outside_regions(item.marks, config) for item in slides]
    wanted = PER_NEGATIVE * sum(map(len, negatives))
    if not wanted or config.make_task().paints_marks:
        return nothing
    random, network = np.random.default_rng(config.seed), parent.network()
    grids = [Grid.over(item.slide, config.mpp) for item in slides]
    squares = [
        (index, box)
        for index, (grid, xy) in enumerate(zip(grids, negatives, strict=True))
        for box in squares_around(grid.from_level0(xy), grid, _SQUARE_PX)
        if box.width and box.height
    ]
    found = list(nothing)
    for place in random.permutation(len(squares))[:_MOST_SQUARES].tolist():
        index, box = squares[place]
        item = slides[index]
        region = item.look_at(network, config, threshold=LEAST_SCORE, box=box, halo_px=CONTEXT_PX)
        seen = region.cells
        cells = Cells(seen.xy, classes=seen.classes, label=seen.label, mpp=item.slide.mpp)
        found[index] = Cells.concatenate([found[index], cells[_unlabelled(cells, item.marks)]])
    chosen = np.zeros(sum(map(len, found)), bool)
    chosen[random.permutation(len(chosen))[:wanted]] = True
    parts = np.split(chosen, np.cumsum([len(cells) for cells in found])[:-1])
    return [cells[part] for cells, part in zip(found, parts, strict=True)]


def with_pseudo_labels(
    slides: Sequence[AnnotatedSlide], found: Sequence[Cells], config: TrainSettings
) -> list[AnnotatedSlide]:
    """Return slides with predictions among their marks.

    Each is in an exhaustive region of one location of the detector's grid. So it is learned as a cell, and
    does not count where a loss estimates the share of the cells that people marked.
    """
    return [
        replace(item, marks=Cells.concatenate([item.marks, _certain(cells, item, config)]))
        if len(cells)
        else item
        for item, cells in zip(slides, found, strict=True)
    ]


def keep_pseudo_labels(folder: Path, found: Sequence[Cells]) -> None:
    """Write the predictions on each slide into the folder of a run, which then resumes without its parent."""
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    for number, cells in enumerate(found):
        if len(cells):
            write_cells(cells, folder / _FOLDER / f"{number}.parquet")


def kept_pseudo_labels(folder: Path, slides: Sequence[AnnotatedSlide]) -> list[Cells]:
    """Return what :func:`keep_pseudo_labels` wrote for each slide."""
    files = [folder / _FOLDER / f"{number}.parquet" for number in range(len(slides))]
    nothing = Cells(np.empty((0, 2)))
    return [read_cells(file) if file.is_file() else nothing for file in files]


def _negatives_outside_regions(marks: Cells, config: TrainSettings) -> NDArray[np.float64]:
    xy = config.labelling.negatives(marks).xy
    outside: NDArray[np.float64] = xy[~is_inside(xy, marks.regions)]
    return outside


def _unlabelled(cells: Cells, marks: Cells) -> NDArray[np.bool_]:
    """Return which cells nobody has marked or rejected, alone or in a region."""
    is_marked = is_near(cells.xy, marks.xy, radius=MATCH_RADIUS_UM / (cells.mpp or 1.0))
    return ~(is_marked | is_inside(cells.xy, marks.regions))


def _certain(cells: Cells, item: AnnotatedSlide, config: TrainSettings) -> Cells:
    grid, half = Grid.over(item.slide, config.mpp), config.make_task().stride / 2
    middle = grid.from_level0(cells.xy) + 0.5  # a location is read at the pixel after its middle
    corners = np.hstack([grid.to_level0(middle - half), grid.to_level0(middle + half)])
    return replace(cells, mpp=item.marks.mpp, regions=shapely.box(*corners.T))


def promoted(
    item: AnnotatedSlide, network: nn.Module, config: TrainSettings, *, tau: float
) -> AnnotatedSlide:
    """Return the slide with the model's confident predictions added to its marks."""
    canvas, task = make_canvas(item, config), config.make_task()
    grid = canvas.grid
    if grid.width * grid.height > LARGEST_WHOLE_PX:
        raise InputError(
            f"{item.slide.name} is too large for rounds of weak supervision; cut regions out of it"
        )
    label = canvas.cut(grid.box, BlockCache(0)).label
    region = item.look_at(network, config, threshold=tau, halo_px=0)
    more = region.finder.confident(region.window, region.parts, label)
    if not task.paints_marks:
        # A mark is one point of the label map; a detection beside it is the same cell.
        radius = MATCH_RADIUS_UM / grid.mpp
        more = more[~is_near(grid.from_level0(more.xy), canvas.points.xy, radius=radius)]
    marks, more = (
        replace(each, id=None, score=None, measurements={}, kind=None) for each in (item.marks, more)
    )
    more = replace(more, mpp=marks.mpp, colors=None)
    return replace(item, marks=Cells.concatenate([marks, more]))
