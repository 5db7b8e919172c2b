"""Pairing images with the files of their marks: by name, by folder, or by a table."""

import csv
import io
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.files import read_text
from sparseshot.images.fingerprint import is_ome_zarr
from sparseshot.images.opening import IMAGE_SUFFIXES


def find_pairs(images: Sequence[Path], marks: Sequence[Path], file: Path | None) -> list[tuple[Path, Path]]:
    """Pair images with marks: file with file, folder with folder, and the rows of a CSV file."""
    if len(images) != len(marks):
        raise InputError(f"{len(images)} slides and {len(marks)} files of marks; give one for each")
    pairs = [pair for image, mark in zip(images, marks, strict=True) for pair in pairs_of(image, mark)]
    return pairs + ([] if file is None else pairs_in_csv(file))


def pairs_of(images: Path, marks: Path) -> list[tuple[Path, Path]]:
    """Pair two files, or the files of two folders by their names."""
    for path in (images, marks):
        if not path.exists():
            raise DataNotFoundError(path, "there is no such file or folder")
    is_image = images.is_file() or is_ome_zarr(images)
    if is_image and marks.is_file():
        return [(images, marks)]
    if is_image or marks.is_file():
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
    """Read pairs from a CSV file with the columns ``slide`` and ``marks``, relative to the file's folder.

    As spreadsheets write it: with commas, semicolons or tabs, and empty lines.
    """
    text = read_text(path)
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        head, *lines = ([cell.strip() for cell in line] for line in reader if "".join(line).strip())
        names = [name.lower() for name in head]
        slide, marks = names.index("slide"), names.index("marks")
        width = max(slide, marks) + 1
        lines = [line + [""] * (width - len(line)) for line in lines]
        pairs = [(path.parent / line[slide], path.parent / line[marks]) for line in lines]
    except ValueError as error:
        raise FormatError(path, f"begins with {first[:80]!r}; its columns must be slide and marks") from error
    except csv.Error as error:
        raise FormatError(path, f"line {reader.line_num} is not CSV ({error})") from error
    for file_path in chain(*pairs):
        try:
            is_there = file_path.is_file() or is_ome_zarr(file_path)
        except OSError:  # a name longer than any file's
            is_there = False
        if not is_there:
            raise DataNotFoundError(file_path, f"named in {path}, but there is no such file")
    return pairs
