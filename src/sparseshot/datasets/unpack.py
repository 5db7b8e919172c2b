"""Unpacking of untrusted archives: nothing outside the folder, no links, no more bytes than allowed."""

import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from sparseshot.errors import FormatError, OutputError

MAX_BYTES = 64 * 2**30
MAX_FILES = 1_000_000
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


def unpack(archive: Path | str, folder: Path | str, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Unpack a zip or tar file into a folder; return the new entries.

    Files are unpacked into a temporary folder and moved when all are sound, so a failure leaves nothing
    behind. The extra files of macOS (``__MACOSX``, ``.DS_Store``) are left out.
    """
    archive, folder = Path(archive), Path(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
            extract = _extract_zip if zipfile.is_zipfile(archive) else _extract_tar
            extract(archive, Path(temporary), max_bytes)
            return _move_in(Path(temporary), folder)
    except _BROKEN as error:
        raise FormatError(archive, f"cannot be unpacked ({error}); download it again") from error


def is_archive(path: Path | str) -> bool:
    """Return whether a file is a zip or tar archive."""
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def _extract_zip(archive: Path, folder: Path, max_bytes: int) -> None:
    with zipfile.ZipFile(archive) as file:
        members = [info for info in file.infolist() if not (info.is_dir() or _is_from_macos(info.filename))]
        for info in members:
            if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
                raise FormatError(archive, f"holds a link or device {info.filename!r}; do not trust it")
        _check(archive, ((info.filename, info.file_size) for info in members), max_bytes)
        file.extractall(folder, members)


def _extract_tar(archive: Path, folder: Path, max_bytes: int) -> None:
    with tarfile.open(archive) as file:
        file.extraction_filter = tarfile.data_filter
        members = [info for info in file if not (info.isdir() or _is_from_macos(info.name))]
        for info in members:
            if not info.isreg():
                raise FormatError(archive, f"holds a link or device {info.name!r}; do not trust it")
        _check(archive, ((info.name, info.size) for info in members), max_bytes)
        file.extractall(folder, members)


def _is_from_macos(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or parts[-1:] == (".DS_Store",)


def _check(archive: Path, members: Iterable[tuple[str, int]], max_bytes: int) -> None:
    """Raise if a name leads out of the folder or occurs twice, or if there are too many files or bytes.

    Neither zipfile nor tarfile unpacks more bytes of a member than its declared size.
    """
    total = 0
    names = set()
    for name, size in members:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
            raise FormatError(archive, f"holds {name!r}, which leads out of the folder; do not trust it")
        if path in names:
            raise FormatError(archive, f"holds {name!r} twice; do not trust it")
        names.add(path)
        total += size
        if len(names) > MAX_FILES or total > max_bytes:
            limit = f"{max_bytes / 2**30:.3g} GiB or {MAX_FILES:,} files"
            raise FormatError(archive, f"unpacks to more than {limit}; do not trust it")


def _move_in(unpacked: Path, folder: Path) -> list[Path]:
    items = sorted(unpacked.iterdir())
    for item in items:
        if (folder / item.name).exists():
            raise OutputError(folder / item.name, "exists already; move it away, or unpack elsewhere")
    return [Path(shutil.move(item, folder / item.name)) for item in items]
