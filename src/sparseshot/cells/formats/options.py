"""Arguments of readers and writers, and the checks of a table that do not depend on its format."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.keys import keys_of
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError, InputError, counted

MEMBER = "sparseshot"
"""Member of JSON files, ignored by other programs, for what their format cannot hold."""


_PLURALS = {
    "outline": "outlines",
    "nucleus": "nuclei",
    "name": "names",
    "score": "scores",
    "regions": "exhaustive regions",
    "region_notes": "notes of regions",
}
"""What columns are called that some formats cannot hold."""


class OpenFile(NamedTuple):
    """An open file and its name in messages."""

    file: BinaryIO
    name: str


@dataclass(frozen=True)
class ReadOptions:
    """Arguments of :func:`~sparseshot.cells.formats.registry.read_cells`, and the count of repairs."""

    repairs: Repairs
    exhaustive_class: str = "Exhaustive"
    mpp: float | None = None
    image: str | int | None = None
    columns: tuple[str, ...] | None = None
    size_px: tuple[int, int] | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Arguments of :func:`~sparseshot.cells.formats.registry.write_cells`, and the count of losses."""

    losses: Repairs
    exhaustive_class: str = "Exhaustive"
    size_px: tuple[int, int] | None = None
    decimals: int = 2
    suffix: str = ""

    def count_lost(self, cells: Cells, *columns: str) -> None:
        """Count the columns that the format cannot hold."""
        for column in columns:
            values = getattr(cells, column)
            number = 0 if values is None else sum(each is not None and each != {} for each in values)
            if number > 1 or column != "classes":
                self.losses.count(f"{_PLURALS.get(column, column)} left out", number)


def optional(module: str, *, extra: str) -> Any:
    """Import a module that only an extra installs, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f'{error}; install it with: pip install "sparseshot[{extra}]"') from error


MOST_CLASSES_OF_FILE = 1000
LONGEST_ID_BYTES = 200
"""Limit for ids, since the longest one sets the width of the whole column."""


NAME = "name"
"""Note of a region that is the name of its annotation in QuPath; the others are its metadata."""

SCORE = "Detection probability"
"""Name of the measurement that holds a score; QuPath's own detectors use it."""


def with_score(cells: Cells, score: NDArray[np.floating] | None) -> Cells:
    """Return the cells with a column as their score, with 1 for NaN, if there is one and it has numbers.

    A column with numbers outside of [0, 1] is no confidence, and becomes a measurement.
    """
    if score is None or np.isnan(score).all():
        return replace(cells, score=None)
    if np.nanmin(score) < 0 or np.nanmax(score) > 1:
        return replace(cells, score=None, measurements={**cells.measurements, SCORE: score})
    return replace(cells, score=np.where(np.isnan(score), 1, score))


def chosen_image(names: Mapping[Any, str], image: str | int | None, where: str) -> Any:
    """Return the key of the image with this name or key; None if no image is asked for and there is one."""
    if image is None:
        if len(names) > 1:
            some = ", ".join([*names.values()][:5])
            raise FormatError(
                where, f"holds cells of {len(names)} images ({some}, …); choose one with image= or --image"
            )
        return None
    wanted = [key for key, name in names.items() if image in (key, name) or str(image) == str(key)]
    if not wanted:
        raise FormatError(where, f"has no image {image!r}; it has {', '.join([*names.values()][:20])}")
    return wanted[0]


def filled_ids(ids: NDArray[Any] | None, repairs: Repairs) -> NDArray[Any] | None:
    """Return ids with empty ones filled in, or None if there are none or all are empty."""
    if ids is None or ids.dtype.kind == "i":
        return ids
    missing = np.asarray(ids == b"")
    if not missing.any():
        return ids
    if missing.all():
        return None
    repairs.count("missing ids filled in", missing.sum())
    ids = ids.astype(f"S{max(ids.dtype.itemsize, 24)}")
    ids[missing] = [b"row %d" % row for row in np.flatnonzero(missing)]
    return ids


def checked(
    cells: Cells,
    path: Path,
    repairs: Repairs,
    *,
    classes: Sequence[str] | None,
    unclassified: str | None,
    size_px: tuple[int, int] | None,
) -> Cells:
    """Return the table with unique ids, the requested classes, and no cells outside of the slide."""
    if len(cells.classes) > MOST_CLASSES_OF_FILE:
        raise FormatError(
            path,
            f"has {len(cells.classes):,} classes, as {cells.classes[0]!r} and {cells.classes[-1]!r}; at most "
            f"{MOST_CLASSES_OF_FILE:,} are read. Are they ids? Then call their column id",
        )
    if cells.id is not None:
        cells = replace(cells, id=_unique(cells.id, repairs))
    if unclassified is not None and (cells.label < 0).any():
        cells = _with_unclassified(cells, unclassified)
    if classes is not None:
        cells = _in_classes(cells, classes, path)
    return cells if size_px is None else _inside(cells, size_px, path, repairs)


def _unique(ids: NDArray[Any], repairs: Repairs) -> NDArray[Any]:
    """Return unique ids: repeated numbers continue after the largest, repeated texts get ~2, ~3, …."""
    keys = np.sort(keys_of(ids))  # a tenth of the time that sorting texts takes
    if not (keys[1:] == keys[:-1]).any():
        return ids
    _, first = np.unique(ids, return_index=True)
    again = np.ones(len(ids), bool)
    again[first] = False
    repairs.count("repeated ids made unique", again.sum())
    if ids.dtype.kind == "i":
        ids = ids.copy()
        ids[again] = ids.max() + 1 + np.arange(again.sum())
        return ids
    names = ids.tolist()
    taken, times = set(names), dict.fromkeys(names, 1)
    for row in np.flatnonzero(again):
        name = names[row]
        while names[row] in taken:
            times[name] += 1
            names[row] = b"%b~%d" % (name, times[name])
        taken.add(names[row])
    return np.array(names, np.bytes_)


def _with_unclassified(cells: Cells, name: str) -> Cells:
    """Return the table with unclassified cells in the class of this name."""
    cells = cells if name in cells.classes else cells.with_classes((*cells.classes, name))
    return replace(cells, label=np.where(cells.label < 0, cells.classes.index(name), cells.label))


def _in_classes(cells: Cells, classes: Sequence[str], path: Path) -> Cells:
    counts = cells.counts()
    unknown = [name for name in cells.classes if counts[name] and name not in classes]
    if unknown:
        found = ", ".join(f"{counted(counts[name], 'cell')} of {name!r}" for name in unknown)
        raise FormatError(path, f"has {found}; the classes asked for are {', '.join(classes)}")
    return cells.with_classes(classes)


def _inside(cells: Cells, size_px: tuple[int, int], path: Path, repairs: Repairs) -> Cells:
    width, height = size_px
    x, y = cells.xy.T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    outside = int(len(cells) - inside.sum())
    if outside == 0:
        return cells
    swapped = (x >= 0) & (y >= 0) & (y < width) & (x < height)
    if swapped.all():
        raise FormatError(
            path,
            f"{outside:,} of {len(cells):,} cells lie outside of the {width} × {height} slide, but none if x "
            "and y change places; write x before y",
        )
    repairs.count(f"cells outside of the {width} × {height} slide left out", outside)
    return cells[inside]


MOST_EXPANSION = 250
"""Largest ratio of unpacked to packed size; JSON of cells reaches 30."""
FREE_BYTES = 64 << 20
"""Size up to which the ratio does not matter."""
BUFFER_BYTES = 1 << 18


def sources(path: Path) -> Iterator[OpenFile]:
    """Yield the file itself, the content of a .gz, or each JSON file of a .zip."""
    left = [max(FREE_BYTES, MOST_EXPANSION * path.stat().st_size)]
    with path.open("rb") as file:
        head = file.peek(4)[:4]
        if head.startswith(b"\x1f\x8b"):
            unpacked = _Limited(gzip.GzipFile(fileobj=file), path, left)
            yield OpenFile(io.BufferedReader(unpacked, BUFFER_BYTES), str(path))
        elif head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            with _named_errors(path):
                archive = zipfile.ZipFile(file)
            yield from _members(archive, path, left)
        else:
            yield OpenFile(file, str(path))


def _members(archive: zipfile.ZipFile, path: Path, left: list[int]) -> Iterator[OpenFile]:
    found = False
    for info in archive.infolist():
        name = PurePosixPath(info.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in info.filename:
            raise FormatError(path, f"holds a file called {info.filename!r}, which points outside of it")
        if not name.parts or info.is_dir() or name.parts[0] == "__MACOSX" or name.name.startswith("."):
            continue
        if name.suffix.lower() in {".json", ".geojson"}:
            found = True
            with _named_errors(path):
                unpacked = _Limited(archive.open(info), path, left)
            yield OpenFile(io.BufferedReader(unpacked, BUFFER_BYTES), f"{path}/{name}")
    if not found:
        raise FormatError(path, "holds no .geojson or .json file; expected is a .zip of QuPath exports")


class _Limited(io.RawIOBase):
    """Unpacked content; ``left`` is the number of bytes that may still be unpacked from the whole file."""

    def __init__(self, packed: io.BufferedIOBase | IO[bytes], path: Path, left: list[int]) -> None:
        self._packed, self._path, self._left = packed, path, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _named_errors(self._path):
            data = self._packed.read(len(buffer))
        self._left[0] -= len(data)
        if self._left[0] < 0:
            reason = f"unpacks to more than {MOST_EXPANSION} times its size; unpack it yourself to read it"
            raise FormatError(self._path, reason)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turn errors of a damaged archive into one that names it."""
    try:
        yield
    except (EOFError, OSError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise FormatError(path, f"is damaged or cut off: {error}; copy it again") from None
    except (NotImplementedError, RuntimeError) as error:  # a method that zipfile lacks, or a password
        raise FormatError(path, f"cannot be unpacked: {error}; unpack it yourself") from None
