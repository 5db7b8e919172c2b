"""Pictures so easy that a tiny network learns them in seconds: dark discs on a bright ground."""

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.images import Box, Grid
from sparseshot.images.slide import Slide
from sparseshot.models.config import TrainConfig, TrainSettings
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.runs import PREPARING
from sparseshot.work import Event, Report


class ArraySlide(Slide):
    """A slide that is an array; counts how often it is read."""

    name, mpp = "array", 0.5

    def __init__(self, pixels: NDArray[np.uint8], mpp: float = 0.5) -> None:
        self.pixels, self.mpp, self.reads = pixels, mpp, 0

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        self.reads += 1
        assert grid.downsample == 1
        out = np.full((box.height, box.width, 3), 255, np.uint8)
        inside = box.meet(grid.box)
        out[inside.within(box)] = self.pixels[inside.within(grid.box)]
        return out

    def thumbnail(self, max_px: int) -> NDArray[np.uint8]:
        return self.pixels


def blobs(seed: int, *, size: int = 192, count: int = 30, mpp: float = 0.5) -> tuple[ArraySlide, Cells]:
    """Make a picture with ``count`` discs of radius 5, and the table of them."""
    random = np.random.default_rng(seed)
    corners = random.permutation((size // 16) ** 2)[:count]
    xy = 16.0 * np.stack([corners % (size // 16), corners // (size // 16)], axis=1) + random.uniform(
        6, 10, (count, 2)
    )
    row, col = np.mgrid[:size, :size] + 0.5
    pixels = random.normal(215, 12, (size, size, 3))
    for x, y in xy:
        pixels[(col - x) ** 2 + (row - y) ** 2 < 25] -= (90, 110, 50)
    outline = shapely.buffer(shapely.points(xy), 5.0)
    return ArraySlide(pixels.clip(0, 255).astype(np.uint8), mpp), Cells(xy, outline=outline, mpp=mpp)


def marked_blobs(seed: int, *, keep: int = 12) -> AnnotatedSlide:
    """Make such a picture with only ``keep`` of its discs marked."""
    slide, truth = blobs(seed)
    return AnnotatedSlide(slide, truth[:keep], truth)


def tiny_config(task: str = "segment", **changes: object) -> TrainSettings:
    """Return settings that train in seconds."""
    return TrainSettings(**(_small(task) | changes))  # type: ignore[arg-type]


def tiny_request(task: str | None = "segment", **changes: object) -> TrainConfig:
    """Return the same as a configuration, which leaves the other settings open."""
    return TrainConfig(**(_small(task) | changes))  # type: ignore[arg-type]


def _small(task: str | None) -> dict[str, object]:
    return {
        "task": task,
        "start": "scratch",
        "width": 4,
        "depth": 2,
        "steps": 12,
        "batch": 4,
        "crop_px": 64,
        "validations": 2,
        "checkpoint_every": 4,
        "log_every": 3,
        "precision": "32",
    }


def saying(lines: list[str]) -> Report:
    """Return a report that adds what a run chose to a list."""

    def report(event: Event) -> None:
        if event.stage == PREPARING:
            lines.append(event.message)

    return report
