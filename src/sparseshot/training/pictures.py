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
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.training.annotated import AnnotatedSlide

COLORS = {
    "marks": (255, 200, 0),
    "truth": (255, 255, 255),
    "found": (0, 225, 245),
    "correct": (0, 220, 90),
    "false": (255, 45, 45),
    "missed": (50, 120, 255),
}
"""Each colour means one thing in all pictures."""

SIDE_PX = 256
TITLES = {
    "image": "image",
    "marks": "marks (yellow)",
    "truth": "ground truth (white)",
    "found": "found (cyan)",
    "errors": "correct (green), false (red), missed (blue)",
}
_GAP, _HEAD = 4, 18


def write_picture(
    path: Path, checkpoint: Checkpoint, images: Sequence[AnnotatedSlide], *, threshold: float
) -> None:
    """Write a sheet with a row for each image, see :func:`picture_row`."""
    rows = [picture_row(checkpoint, image, threshold=threshold) for image in images]
    columns = [name for name in TITLES if any(name in row for row in rows)]
    columns.sort(key=lambda name: name == "marks")  # last, because not every row has them
    step = SIDE_PX + _GAP
    sheet = Image.new("RGB", (len(columns) * step - _GAP, len(rows) * (_HEAD + step) - _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, row in enumerate(rows):
        for column, name in enumerate(columns):
            if name in row:
                x, y = column * step, number * (_HEAD + step)
                draw.text((x + 2, y + 3), TITLES[name], fill="black")
                sheet.paste(Image.fromarray(row[name]), (x, y + _HEAD))
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG", optimize=True)


def picture_row(
    checkpoint: Checkpoint, item: AnnotatedSlide, *, threshold: float
) -> dict[str, NDArray[np.uint8]]:
    """Return the middle of an image by the names of :data:`TITLES`.

    An image without a separate truth was not trained on: its marks are the truth, and there is no panel of
    marks.
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
    region = item.look_at(
        checkpoint.network(), checkpoint.config, threshold=threshold, box=box.meet(grid.box)
    )
    found = region.cells.crop(*grid.to_level0(box), shift=True)
    panels = {"image": image}
    if item.truth is not None:
        panels["marks"] = _drawn(image, local(item.marks), grid, "marks")
    panels |= {"truth": _drawn(image, truth, grid, "truth"), "found": _drawn(image, found, grid, "found")}
    if found.outline is not None:
        is_found, is_true = (_mask(cells, grid) for cells in (found, truth))
        kinds = {"correct": is_found & is_true, "false": is_found & ~is_true, "missed": ~is_found & is_true}
        panels["errors"] = image
        for kind, where in kinds.items():
            panels["errors"] = _tinted(panels["errors"], where, kind)
        return panels
    places, real = grid.from_level0(found.xy), grid.from_level0(truth.xy)
    match = match_points(real, places, radius=MATCH_RADIUS_UM / grid.mpp)
    hit, missed = np.zeros(len(places), bool), np.ones(len(real), bool)
    hit[match.found], missed[match.truth] = True, False
    errors = _dots(_dots(image, places[hit], "correct"), places[~hit], "false")
    return panels | {"errors": _dots(errors, real[missed], "missed")}


def _mask(cells: Cells, grid: Grid) -> NDArray[np.bool_]:
    return grid.rasterise(cells, Box(0, 0, SIDE_PX, SIDE_PX), by="instance") > 0


def _drawn(image: NDArray[np.uint8], cells: Cells, grid: Grid, kind: str) -> NDArray[np.uint8]:
    if cells.outline is None:
        return _dots(image, grid.from_level0(cells.xy), kind)
    return _tinted(image, _mask(cells, grid), kind)


def _tinted(image: NDArray[np.uint8], where: NDArray[np.bool_], kind: str) -> NDArray[np.uint8]:
    tinted = image.copy()
    tinted[where] = (0.45 * image[where] + 0.55 * np.array(COLORS[kind])).astype(np.uint8)
    return tinted


def _dots(image: NDArray[np.uint8], xy: NDArray[np.float64], kind: str) -> NDArray[np.uint8]:
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    for x, y in xy:
        draw.ellipse((x - 3, y - 3, x + 3, y + 3), outline=COLORS[kind], width=2)
    return np.asarray(picture)
