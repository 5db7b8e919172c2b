"""Pictures of marks, truth, found cells and errors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparseshot.cells import Cells
from sparseshot.files import replacing
from sparseshot.images import Box, Grid
from sparseshot.metrics import match_points
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.checkpoint import Checkpoint

GREEN, RED, BLUE, YELLOW = (0, 170, 60), (225, 40, 40), (40, 90, 255), (255, 200, 0)
SIDE_PX = 256
_TITLES = ("image", "marks given", "truth", "found", "correct (green), false (red), missed (blue)")
_GAP, _HEAD = 4, 18


def write_picture(
    path: Path, checkpoint: Checkpoint, images: Sequence[AnnotatedSlide], *, threshold: float
) -> None:
    """Write a sheet with a row for each image, see :func:`picture_row`."""
    rows = [picture_row(checkpoint, image, threshold=threshold) for image in images]
    width = len(_TITLES) * (SIDE_PX + _GAP) - _GAP
    sheet = Image.new("RGB", (width, _HEAD + len(rows) * (SIDE_PX + _GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(_TITLES):
        draw.text((column * (SIDE_PX + _GAP) + 2, 3), title, fill="black")
    for number, row in enumerate(rows):
        for column, picture in enumerate(row):
            place = (column * (SIDE_PX + _GAP), _HEAD + number * (SIDE_PX + _GAP))
            sheet.paste(Image.fromarray(picture), place)
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG", optimize=True)


def picture_row(checkpoint: Checkpoint, item: AnnotatedSlide, *, threshold: float) -> list[NDArray[np.uint8]]:
    """Return the middle of an image five times: plain, with marks, truth, found cells and errors.

    An image without a separate truth was not trained on: its marks are the truth and the marks panel is grey.
    """
    grid = Grid.over(item.slide, checkpoint.mpp)
    x0, y0 = max(0, (grid.width - SIDE_PX) // 2), max(0, (grid.height - SIDE_PX) // 2)
    box = Box(x0, y0, x0 + SIDE_PX, y0 + SIDE_PX)
    image = item.slide.read(grid, box)
    labelling = checkpoint.config.labelling

    def local(cells: Cells) -> Cells:
        """Return the cells of the box in its pixels."""
        return labelling.positives(cells).crop(*grid.to_level0(box), shift=True)

    truth = local(item.cells)
    given = np.full_like(image, 235) if item.truth is None else _drawn(image, local(item.marks), grid, YELLOW)
    region = item.look_at(
        checkpoint.network(), checkpoint.config, threshold=threshold, box=box.meet(grid.box)
    )
    found = region.cells.crop(*grid.to_level0(box), shift=True)
    panels = [image, given, _drawn(image, truth, grid, GREEN), _drawn(image, found, grid, BLUE)]
    if found.outline is not None:
        is_found, is_true = (_mask(cells, grid) for cells in (found, truth))
        errors = _tinted(image, is_found & is_true, GREEN)
        return [*panels, _tinted(_tinted(errors, is_found & ~is_true, RED), ~is_found & is_true, BLUE)]
    places, real = grid.from_level0(found.xy), grid.from_level0(truth.xy)
    match = match_points(real, places, radius=MATCH_RADIUS_UM / grid.mpp)
    hit, missed = np.zeros(len(places), bool), np.ones(len(real), bool)
    hit[match.found], missed[match.truth] = True, False
    errors = _dots(_dots(image, places[hit], GREEN), places[~hit], RED)
    return [*panels, _dots(errors, real[missed], BLUE)]


def _mask(cells: Cells, grid: Grid) -> NDArray[np.bool_]:
    return grid.rasterise(cells, Box(0, 0, SIDE_PX, SIDE_PX), by="instance") > 0


def _drawn(
    image: NDArray[np.uint8], cells: Cells, grid: Grid, color: tuple[int, int, int]
) -> NDArray[np.uint8]:
    if cells.outline is None:
        return _dots(image, grid.from_level0(cells.xy), color)
    return _tinted(image, _mask(cells, grid), color)


def _tinted(
    image: NDArray[np.uint8], where: NDArray[np.bool_], color: tuple[int, int, int]
) -> NDArray[np.uint8]:
    tinted = image.copy()
    tinted[where] = (0.45 * image[where] + 0.55 * np.array(color)).astype(np.uint8)
    return tinted


def _dots(
    image: NDArray[np.uint8], xy: NDArray[np.float64], color: tuple[int, int, int]
) -> NDArray[np.uint8]:
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    for x, y in xy:
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), outline=color, width=2)
    return np.asarray(picture)
