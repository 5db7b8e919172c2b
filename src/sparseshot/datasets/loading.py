"""Loading of a data set: its files are found, its labels read, and unusable images left out."""

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.datasets.catalogue import SPLITS, DatasetInfo, Split, dataset_info
from sparseshot.datasets.labels import READERS
from sparseshot.datasets.layout import Entry, find_layout
from sparseshot.errors import (
    DataNotFoundError,
    InputError,
    RepairWarning,
    SlideError,
    SparseshotError,
    counted,
)
from sparseshot.images import Grid, open_slide
from sparseshot.images.plain_image import MAX_PIXELS, opened_image

_PLAIN_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"})
_SHOWN = 5
"""Number of lines that a warning shows; all are kept in the :class:`Dataset`."""


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
        width, height = self.size
        if width * height > MAX_PIXELS:
            raise SlideError(
                self.image,
                f"{width} × {height} pixels are too many to read at once; open it with open_slide and read "
                "regions",
            )
        with open_slide(self.image, mpp=self.mpp, force_mpp=True) as slide:
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


def load_dataset(name: str, root: Path | str, *, split: Split | None = None) -> Dataset:
    """Load a data set of the catalogue, or one split of it.

    Labels are read at once, images on demand. Unusable images are left out with a warning that names them;
    it is an error only if no image can be used.

    Args:
        name: as in :data:`~sparseshot.datasets.CATALOGUE`.
        root: folder of the data set, or its parent.
        split: ``"train"``, ``"validation"`` or ``"test"``; None for all images.
    """
    info = dataset_info(name)
    if split is not None and split not in SPLITS:
        raise InputError(f"split is {split!r}; give one of {', '.join(SPLITS)}, or leave it out")
    layout = find_layout(info, root)
    chosen = [entry for entry in layout.entries if split in {None, entry.split}]
    if not chosen:
        available = {entry.split for entry in layout.entries}
        parts = ", ".join(part for part in SPLITS if part in available) or "no split at all"
        raise DataNotFoundError(
            root,
            f"has no images for {split!r}, only {parts} ({info.splits.source}); hold some patients of train "
            "out with hold_out, or complete the folder",
        )
    left_out = [line for line, part in layout.missing.items() if split in {None, part}]
    tried = [try_to_load(entry, info) for entry in chosen]
    samples = [sample for sample, _ in tried if isinstance(sample, Sample)]
    errors = [error for error, _ in tried if isinstance(error, SparseshotError)]
    if not samples:
        raise errors[0]
    left_out += map(str, errors)
    mended = [line for _, repairs in tried for line in repairs]
    _warn(f"{info.title}: {counted(len(left_out), 'image')} left out, {len(samples)} kept", left_out)
    _warn(f"{info.title}: {len(mended)} of {len(tried)} label files repaired", mended)
    classes = info.classes or tuple(
        dict.fromkeys(kind for sample in samples for kind in sample.cells.classes)
    )
    return Dataset(
        name=info.name,
        classes=classes,
        mpp=info.mpp or float(np.median([sample.mpp for sample in samples])),
        samples=tuple(replace(sample, cells=sample.cells.with_classes(classes)) for sample in samples),
        info=info,
        split=split,
        left_out=tuple(left_out),
        mended=tuple(mended),
    )


def _warn(what: str, lines: list[str]) -> None:
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        warnings.warn(RepairWarning(f"{what}: {'; '.join(lines[:_SHOWN])}{more}"), stacklevel=3)


def try_to_load(entry: Entry, info: DatasetInfo) -> tuple[Sample | SparseshotError, list[str]]:
    """Return the sample of one image, or the error that prevents it, and the repairs of its labels."""
    sample: Sample | SparseshotError
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            sample = load_sample(entry, info)
        except SparseshotError as error:
            sample = error
    for other in (warning for warning in caught if not issubclass(warning.category, RepairWarning)):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return sample, [str(each.message) for each in caught if issubclass(each.category, RepairWarning)]


def load_sample(entry: Entry, info: DatasetInfo) -> Sample:
    """Read the labels of one image and compare them with its size."""
    if not entry.labels.exists():
        raise DataNotFoundError(
            entry.labels, f"no such file; the labels of {entry.image.name} are expected there"
        )
    size, mpp = _size_and_mpp(entry.image, info.mpp)
    cells = READERS[entry.reader](entry.labels, info.classes, size, mpp)
    mpp = cells.mpp or mpp
    return Sample(entry.name, entry.image, replace(cells, mpp=mpp), mpp, entry.group, size)


def _size_and_mpp(path: Path, mpp: float | None) -> tuple[tuple[int, int], float]:
    """Return width and height, and the µm per pixel, without decoding the image."""
    if mpp is None or path.suffix.lower() not in _PLAIN_SUFFIXES:
        with open_slide(path, mpp=mpp, force_mpp=True) as slide:
            return slide.size, slide.mpp
    try:
        with opened_image(path) as image:
            return image.size, mpp
    except (OSError, SyntaxError, ValueError) as error:
        raise SlideError(path, f"cannot be read as an image ({error}); copy it again") from error
