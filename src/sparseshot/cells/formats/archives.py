"""Files inside .gz and .zip, read within limits and without unpacking to disk."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from sparseshot.cells.formats.options import OpenFile
from sparseshot.errors import FormatError

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
