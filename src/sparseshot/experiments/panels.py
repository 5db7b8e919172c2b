"""Small pictures of a run's marks, ground truth and errors, which the report shows together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sparseshot.files import replacing
from sparseshot.images import Grid
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.pictures import picture_row

FOLDER = "panels"
IMAGES = ("training", "test")
COLUMNS = ("image", "marks", "truth", "half", "calibrated")
"""The image, the marks, the ground truth, and the errors at threshold 0.5 and at the calibrated one."""


def write_panels(
    folder: Path, checkpoint: Checkpoint, *, given: AnnotatedSlide, unseen: AnnotatedSlide
) -> None:
    """Write the panels of a training image and of a test image, one small file each."""
    (folder / FOLDER).mkdir(exist_ok=True)
    shown = (replace(given, truth=given.cells), unseen)
    for name, image in zip(IMAGES, shown, strict=True):
        grid = Grid.over(image.slide, checkpoint.mpp)
        inside = np.s_[: grid.height, : grid.width]  # panels of smaller images are padded
        panels = picture_row(checkpoint, image, threshold=0.5)
        panels["half"] = panels.pop("errors")
        if checkpoint.threshold is not None:
            at = picture_row(checkpoint, image, threshold=checkpoint.threshold)
            panels["calibrated"] = at["errors"]
        for column in (column for column in COLUMNS if column in panels):
            with replacing(panel_path(folder, name, column)) as temporary:
                Image.fromarray(panels[column][inside]).save(temporary, "PNG")


def panel_path(folder: Path, image: str, column: str) -> Path:
    """Return the file of one panel of a run's folder."""
    return folder / FOLDER / f"{image}-{column}.png"


def read_panel(folder: Path, image: str, column: str) -> NDArray[np.uint8] | None:
    """Read one panel; None if it does not exist."""
    path = panel_path(folder, image, column)
    if not path.is_file():
        return None
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
