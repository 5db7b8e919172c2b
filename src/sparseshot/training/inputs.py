"""What a run is trained on: a benchmark set, or one's own images or slides with their marks."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparseshot.cells import choose_marks, read_cells
from sparseshot.datasets import Dataset, Sample, load_dataset
from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.images import open_slide, tissue_mask
from sparseshot.training.prepare import Marked

IMAGE_SUFFIXES = frozenset(
    {
        ".png",
        ".jpg",
        ".jpeg",
        ".bmp",
        ".tif",
        ".tiff",
        ".svs",
        ".ndpi",
        ".mrxs",
        ".scn",
        ".dcm",
        ".bif",
        ".vms",
    }
)


@dataclass(frozen=True)
class TrainingData:
    """Marked images to learn from, and marked images to choose the threshold on; the second may be empty."""

    training: tuple[Marked, ...]
    validation: tuple[Marked, ...] = ()


def training_data_of_dataset(
    name: str, root: Path, *, fraction: float, seed: int, marking: str = "random"
) -> TrainingData:
    """Load a benchmark set, keep a fraction of its marks, and remember the rest as the truth.

    Training and validation images have the same fraction of their marks: nobody who marks sparsely has a
    validation set that is marked exhaustively. Where the set has no validation split, a sixth of the patients
    in training becomes one.
    """
    training, validation = training_splits(name, root)
    return TrainingData(
        tuple(_thinned(training.samples, fraction, seed, marking)),
        tuple(_thinned(validation.samples, fraction, seed, marking)),
    )


def training_splits(name: str, root: Path) -> tuple[Dataset, Dataset]:
    """Return the training and the validation part of a benchmark set."""
    training = load_dataset(name, root, split="train")
    try:
        return training, load_dataset(name, root, split="validation")
    except DataNotFoundError:
        return training.hold_out(1 / 6)


def _thinned(samples: Sequence[Sample], fraction: float, seed: int, marking: str) -> list[Marked]:
    marks = choose_marks([sample.cells for sample in samples], fraction, seed=seed, marking=marking)
    return [
        Marked(open_slide(sample.image, mpp=sample.mpp), few, sample.cells)
        for sample, few in zip(samples, marks, strict=True)
    ]


def training_data_of_pairs(
    pairs: Sequence[tuple[Path, Path]],
    *,
    mpp: float | None,
    exhaustive_class: str,
    fraction: float,
    seed: int,
    marking: str = "random",
) -> TrainingData:
    """Open one's own images or slides with the marks of each."""
    if not pairs:
        raise InputError("nothing to train on; give a slide and its marks")
    slides = [open_slide(image, mpp=mpp) for image, _ in pairs]
    marks = [
        replace(read_cells(file, exhaustive_class=exhaustive_class), mpp=slide.mpp)
        for slide, (_, file) in zip(slides, pairs, strict=True)
    ]
    if fraction < 1:
        marks = choose_marks(marks, fraction, seed=seed, marking=marking)
    return TrainingData(
        tuple(
            Marked(slide, cells, tissue=tissue_mask(slide))
            for slide, cells in zip(slides, marks, strict=True)
        )
    )


def find_pairs(images: Sequence[Path], marks: Sequence[Path], file: Path | None) -> list[tuple[Path, Path]]:
    """Pair images with marks: one with one, folder with folder, and what a CSV file says."""
    if len(images) != len(marks):
        raise InputError(f"{len(images)} slides and {len(marks)} files of marks; give one for each")
    pairs = [pair for image, mark in zip(images, marks, strict=True) for pair in pairs_of(image, mark)]
    return pairs + ([] if file is None else pairs_in_csv(file))


def pairs_of(images: Path, marks: Path) -> list[tuple[Path, Path]]:
    """Pair two files, or the files of two folders by their names."""
    for path in (images, marks):
        if not path.exists():
            raise DataNotFoundError(path, "there is no such file or folder")
    if images.is_file() and marks.is_file():
        return [(images, marks)]
    if images.is_file() or marks.is_file():
        raise InputError(f"{images} and {marks} are a file and a folder; give two files or two folders")
    candidates = [path for path in sorted(marks.iterdir()) if path.is_file()]
    taken: dict[Path, Path] = {}
    for image in sorted(path for path in images.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES):
        fitting = [path for path in candidates if path.name.startswith(f"{image.stem}.") and path != image]
        if len(fitting) > 1:
            raise InputError(
                f"{image} has marks in {fitting[0].name} and {fitting[1].name}; leave one of them"
            )
        for path in fitting:
            if path in taken:
                raise InputError(f"{path} fits both {taken[path].name} and {image.name}; leave one of them")
            taken[path] = image
    if not taken:
        raise DataNotFoundError(
            marks,
            f"no file of marks is named like an image in {images}; name them alike: a.svs and a.geojson",
        )
    return [(image, path) for path, image in taken.items()]


def pairs_in_csv(path: Path) -> list[tuple[Path, Path]]:
    """Read pairs from a CSV file with the columns ``slide`` and ``marks``, relative to the file's folder."""
    if not path.is_file():
        raise DataNotFoundError(path, "there is no such file")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if not {"slide", "marks"} <= set(reader.fieldnames or ()):
            raise FormatError(path, f"has the columns {reader.fieldnames}; it needs slide and marks")
        pairs = [(path.parent / row["slide"], path.parent / row["marks"]) for row in reader]
    for pair in pairs:
        for file_path in pair:
            if not file_path.is_file():
                raise DataNotFoundError(file_path, f"named in {path}, but there is no such file")
    return pairs
