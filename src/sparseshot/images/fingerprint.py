"""Fingerprints that tell one slide from another without reading gigabytes, and slides of several files.

A DICOM slide has a file for each level, and more for label and overview. OpenSlide opens the slide from any
of them, and finds the others in the same folder.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from sparseshot.images.slide import Slide

_ENDS_BYTES = 2**20
_SAMPLES, _SAMPLE_BYTES = 512, 2**12


def is_ome_zarr(path: Path) -> bool:
    """Return whether a path is a folder that looks like Zarr, of version 3 or 2."""
    return path.is_dir() and any((path / name).is_file() for name in ("zarr.json", ".zattrs"))


def slide_fingerprint(slide: Slide) -> str:
    """Return a hash of a slide's size, pixel size and content, independent of its path."""
    start = f"{slide.size} {slide.mpp!r}"
    path: Path | None = getattr(slide, "path", None)
    if path is None:
        return hashlib.sha256(f"{start}{slide!r}".encode()).hexdigest()
    return file_fingerprint(path, start)


def file_fingerprint(path: Path, start: str = "") -> str:
    """Return a hash of ``start`` and the content of a slide's file.

    Both ends and 512 evenly spread samples are hashed: the ends hold the directories of most formats, the
    samples differ even between uncompressed slides with equal margins. The names and sizes of the files in
    the folder of an MRXS slide are included, and all files of a DICOM series. OME-Zarr is a folder.
    """
    digest = hashlib.sha256(start.encode())
    if path.is_dir():
        return _folder_fingerprint(path, digest)
    for part in series_files(path):
        _hash_samples(part, digest)
    folder = path.with_suffix("")
    for part in sorted(folder.glob("*")) if path.suffix.lower() == ".mrxs" else ():
        digest.update(f"{part.name} {part.stat().st_size}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _hash_samples(path: Path, digest: "hashlib._Hash") -> None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        last = max(0, size - _ENDS_BYTES)
        samples = (round(last * k / _SAMPLES) for k in range(1, _SAMPLES))
        lengths = {0: _ENDS_BYTES, **dict.fromkeys(samples, _SAMPLE_BYTES), last: _ENDS_BYTES}
        for place, length in lengths.items():
            file.seek(place)
            digest.update(file.read(length))


def _folder_fingerprint(folder: Path, digest: "hashlib._Hash") -> str:
    """Hash the names and sizes of all files of an OME-Zarr folder, and the content of evenly spread ones."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for number, path in enumerate(files):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name} {path.stat().st_size}\n".encode(errors="surrogateescape"))
        if (
            number % max(1, len(files) // _SAMPLES) == 0
            or path.suffix == ".json"
            or path.name.startswith(".z")
        ):
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


_HEADER_BYTES = 2**18
_UIDS = re.compile(rb"\x20\0\x0d\0.{4}[0-9.]+[\0 ]?\x20\0\x0e\0.{4}([0-9.]+)", re.DOTALL)
"""Study (0020,000D) and series (0020,000E) follow each other at the top level only, not in references."""


def series_uid(path: Path) -> str | None:
    """Return the SeriesInstanceUID of a DICOM file; None for other files."""
    if not path.is_file():  # a pipe would block
        return None
    try:
        with path.open("rb") as file:
            is_dicom = file.read(132).endswith(b"DICM")
            found = _UIDS.search(file.read(_HEADER_BYTES)) if is_dicom else None
    except OSError:
        return None
    return found and found.group(1).decode()


def series_files(path: Path) -> list[Path]:
    """Return all files of the slide to which a file belongs, sorted by name; other files stand alone."""
    uid = series_uid(path)
    if uid is None:
        return [path]
    return sorted(each for each in path.parent.iterdir() if series_uid(each) == uid)


def one_per_series(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without further files of a DICOM series in the same folder; the first stays."""
    found: dict[object, Path] = {}
    for path in paths:
        uid = series_uid(path)
        found.setdefault((path.parent.resolve(), uid) if uid else path, path)
    return list(found.values())
