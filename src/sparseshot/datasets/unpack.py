"""Unpacking of untrusted archives: nothing outside the folder, no links, no more bytes than declared."""

import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sparseshot.errors import FormatError, OutputError

MAX_BYTES = 64 * 2**30
MAX_FILES = 1_000_000
_CHUNK = 2**20
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    EOFError,
    NotImplementedError,  # unknown compression
    RuntimeError,  # encrypted
    ValueError,
)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    file: IO[bytes]


def unpack(archive: Path | str, folder: Path | str, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Unpack a zip or tar file into a folder; return the new entries.

    Files are unpacked into a temporary folder and moved when all are sound, so a failure leaves nothing
    behind. The extra files of macOS (``__MACOSX``, ``.DS_Store``) are left out.
    """
    archive, folder = Path(archive), Path(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
            _write_members(archive, Path(temporary), max_bytes)
            return _move_in(Path(temporary), folder)
    except _BROKEN as error:
        raise FormatError(archive, f"cannot be unpacked ({error}); download it again") from error


def is_archive(path: Path | str) -> bool:
    """Return whether a file is a zip or tar archive."""
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def _write_members(archive: Path, folder: Path, max_bytes: int) -> None:
    total = 0
    for number, member in enumerate(_members(archive)):
        target = folder / _inside(archive, member.name)
        total += member.size
        if number >= MAX_FILES or total > max_bytes:
            raise FormatError(
                archive,
                f"unpacks to more than {max_bytes / 2**30:.3g} GiB or {MAX_FILES:,} files; do not trust it",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as file:
                _copy(archive, member, file)
        except FileExistsError as error:
            raise FormatError(archive, f"holds {member.name!r} twice; do not trust it") from error


def _copy(archive: Path, member: _Member, file: IO[bytes]) -> None:
    left = member.size
    while chunk := member.file.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise FormatError(archive, f"{member.name!r} is larger than declared; do not trust it")
        file.write(chunk)


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Return the path of a member; raise if it leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        raise FormatError(archive, f"holds {name!r}, which leads out of the folder; do not trust it")
    return path


def _members(archive: Path) -> Iterator[_Member]:
    opened = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive)
    for member in opened:
        parts = PurePosixPath(member.name).parts
        if "__MACOSX" not in parts and parts[-1:] != (".DS_Store",):
            yield member


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise FormatError(archive, f"holds a link or device {info.filename!r}; do not trust it")
            if not info.is_dir():
                with file.open(info) as content:
                    yield _Member(info.filename, info.file_size, content)


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as file:
        for info in file:
            if info.isdir():
                continue
            content = file.extractfile(info) if info.isreg() else None
            if content is None:
                raise FormatError(archive, f"holds a link or device {info.name!r}; do not trust it")
            with closing(content):
                yield _Member(info.name, info.size, content)


def _move_in(unpacked: Path, folder: Path) -> list[Path]:
    items = sorted(unpacked.iterdir())
    for item in items:
        if (folder / item.name).exists():
            raise OutputError(folder / item.name, "exists already; move it away, or unpack elsewhere")
    return [Path(shutil.move(item, folder / item.name)) for item in items]
