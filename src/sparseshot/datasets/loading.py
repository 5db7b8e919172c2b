"""Loading of a data set: its files are found, its labels read, and unusable images left out."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sparseshot.datasets.catalogue import SPLITS, DatasetInfo, Split, dataset_info
from sparseshot.datasets.labels import READERS
from sparseshot.datasets.layout import Entry, find_layout
from sparseshot.datasets.sample import PLAIN_SUFFIXES, Dataset, Sample
from sparseshot.datasets.splits import require
from sparseshot.errors import (
    DataNotFoundError,
    InputError,
    RepairWarning,
    SlideError,
    SparseshotError,
)
from sparseshot.images import open_slide

_SHOWN = 5
"""Number of lines that a warning shows; all are kept in the :class:`Dataset`."""


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
    if split is not None:
        require(split, (entry.split for entry in layout.entries), info.splits, Path(root))
    left_out = [
        f"{layout.folder}: {missing} is listed for {part} but missing"
        for missing, part in layout.missing.items()
        if split in {None, part}
    ]
    attempts = [attempt(entry, info) for entry in layout.entries if split in {None, entry.split}]
    samples = [tried.sample for tried in attempts if tried.sample is not None]
    errors = [tried.error for tried in attempts if tried.error is not None]
    if errors and not samples:
        raise errors[0]
    left_out += map(str, errors)
    mended = [line for tried in attempts for line in tried.mended]
    _warn(f"{info.title}: {len(left_out)} images left out, {len(samples)} kept", left_out)
    _warn(f"{info.title}: {len(mended)} of {len(attempts)} files of labels mended", mended)
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


@dataclass(frozen=True)
class Attempt:
    """A sample, or the error that prevents it, and the repairs made while reading its labels."""

    sample: Sample | None
    error: SparseshotError | None
    mended: tuple[str, ...]


def attempt(entry: Entry, info: DatasetInfo) -> Attempt:
    """Try to load one image; its repair warnings are collected instead of issued one by one."""
    sample = failure = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            sample = load_sample(entry, info)
        except SparseshotError as error:
            failure = error
    for other in (warning for warning in caught if not issubclass(warning.category, RepairWarning)):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    mended = tuple(str(warning.message) for warning in caught if issubclass(warning.category, RepairWarning))
    return Attempt(sample, failure, mended)


def load_sample(entry: Entry, info: DatasetInfo) -> Sample:
    """Read the labels of one image and compare them with its size."""
    if not entry.labels.is_file():
        raise DataNotFoundError(
            entry.labels, f"no such file; the labels of {entry.image.name} are expected there"
        )
    size, mpp = _size_and_mpp(entry.image, info.mpp)
    cells = READERS[entry.reader](entry.labels, info.classes, size)
    mpp = cells.mpp or mpp
    return Sample(entry.name, entry.image, replace(cells, mpp=mpp), mpp, entry.group, size)


def _size_and_mpp(path: Path, mpp: float | None) -> tuple[tuple[int, int], float]:
    """Return width and height, and the µm per pixel, without decoding the image."""
    if mpp is None or path.suffix.lower() not in PLAIN_SUFFIXES:
        with open_slide(path, mpp=mpp) as slide:
            return slide.size, slide.mpp
    try:
        with Image.open(path) as image:
            return image.size, mpp
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SlideError(path, f"cannot be read as an image ({error}); copy it again") from error
