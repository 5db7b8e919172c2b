"""An image with its cells, and a data set of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.datasets.catalogue import DatasetInfo, Split
from sparseshot.errors import InputError, SlideError
from sparseshot.images import Grid, open_slide, read_image
from sparseshot.images.plain_image import MAX_PIXELS

PLAIN_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"})


@dataclass(frozen=True)
class Sample:
    """An image and its marks; the image is read on demand.

    Attributes:
        name: unique in its data set.
        image: file of the image or slide.
        cells: marks in level-0 pixels.
        mpp: µm per level-0 pixel.
        group: the patient; no patient is in two splits.
        size: width and height in level-0 pixels.
    """

    name: str
    image: Path
    cells: Cells
    mpp: float
    group: str
    size: tuple[int, int]

    def read(self) -> NDArray[np.uint8]:
        """Read the whole image as ``(H, W, 3)`` RGB; for large slides, read regions instead."""
        if self.image.suffix.lower() in PLAIN_SUFFIXES:
            return read_image(self.image)
        width, height = self.size
        if width * height > MAX_PIXELS:
            raise SlideError(
                self.image,
                f"{width} × {height} pixels are too many to read at once; open it with open_slide and read "
                "regions",
            )
        with open_slide(self.image, mpp=self.mpp) as slide:
            grid = Grid.over(slide)
            return slide.read(grid, grid.box)


@dataclass(frozen=True)
class Dataset:
    """The samples of a data set, or of one split of it.

    Attributes:
        name: as in the catalogue.
        classes: names of the classes, the same for all samples.
        mpp: nominal µm per pixel; a sample may have its own.
        samples: sorted by name.
        info: catalogue entry.
        split: the split, or None for all images.
        left_out: why images are missing from the samples, one line each.
        mended: repairs to label files, e.g. of self-crossing outlines, one line each.
    """

    name: str
    classes: tuple[str, ...]
    mpp: float
    samples: tuple[Sample, ...]
    info: DatasetInfo
    split: Split | None = None
    left_out: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __repr__(self) -> str:
        part = f" {self.split}" if self.split else ""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts().items())
        return f"Dataset({self.name}{part}: {len(self)} images of {len(self.groups)} patients, {counts})"

    @property
    def groups(self) -> tuple[str, ...]:
        """The patients."""
        return tuple(sorted({sample.group for sample in self.samples}))

    def counts(self) -> dict[str, int]:
        """Return the number of cells of each class over all samples."""
        total: dict[str, int] = dict.fromkeys(self.classes, 0)
        for sample in self.samples:
            for name, count in sample.cells.counts().items():
                total[name] = total.get(name, 0) + count
        return total

    def hold_out(self, fraction: float, *, seed: int = 0) -> tuple[Self, Self]:
        """Return the data set without some patients, and the data set of these; both have at least one.

        The order of patients depends on their names and the seed alone. A missing image therefore moves no
        patient to the other side, and a larger fraction includes all that a smaller one holds out.

        Args:
            fraction: share of patients to hold out, in (0, 1); rounded to whole patients.
            seed: seed of the choice.
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction is {fraction}; give the share of patients to hold out, e.g. 0.2")
        groups = sorted(self.groups, key=lambda group: hashlib.sha256(f"{seed} {group}".encode()).digest())
        if len(groups) < 2:
            raise InputError(f"{self.name} has {len(groups)} patient; holding one out takes at least two")
        held = set(groups[: min(max(1, round(fraction * len(groups))), len(groups) - 1)])
        kept, out = (
            tuple(sample for sample in self.samples if (sample.group in held) == inside)
            for inside in (False, True)
        )
        return replace(self, samples=kept), replace(self, samples=out)
