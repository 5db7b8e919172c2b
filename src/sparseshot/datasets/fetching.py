"""Fetching a data set from its publisher, with a checksum; archives are unpacked inside their folder only."""

import hashlib
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sparseshot import __version__
from sparseshot.datasets.catalogue import DatasetInfo
from sparseshot.datasets.layout import find_layout
from sparseshot.errors import DataNotFoundError, FormatError, InputError, OutputError
from sparseshot.files import replacing
from sparseshot.work import Event, Report, ignore

_CHUNK = 2**18
_TIMEOUT_S = 60
_MAX_BYTES = 64 * 2**30
_MAX_FILES = 1_000_000


@dataclass(frozen=True)
class Fetched:
    """Result of :func:`fetch`.

    Attributes:
        folder: the root for :func:`~sparseshot.datasets.load_dataset`.
        images: number of images.
        md5: checksum of the archive.
        sha256: another.
        bytes: size of the archive.
        as_published: whether the publisher's checksum was compared.
    """

    folder: Path
    images: int
    md5: str
    sha256: str
    bytes: int
    as_published: bool


def fetch(
    info: DatasetInfo,
    out: Path | str,
    *,
    address: str | None = None,
    keep_archive: bool = False,
    report: Report = ignore,
) -> Fetched:
    """Download and unpack a data set into the folder ``out``.

    Args:
        info: catalogue entry.
        out: target folder, created if missing. An archive that is already there is not downloaded.
        address: alternative URL of the same archive, e.g. a mirror; the checksum is still compared.
        keep_archive: keep the archive after unpacking.
        report: receives progress events, in bytes.
    """
    out = Path(out)
    if info.archive is None:
        raise DataNotFoundError(out, f"{info.title} has no address to download from; {info.how_to_get(out)}")
    out.mkdir(parents=True, exist_ok=True)
    archive = out / info.archive.file
    given = archive.exists()
    if not given:
        download(address or info.archive.address, archive, report=report)
    (md5, sha256), published = checksums(archive), info.archive.md5
    problem = None
    if published not in {None, md5}:
        cure = "remove it" if given else "try again; if that does not help, the publisher changed the file"
        problem = f"has the MD5 {md5}, the publisher's is {published}; {cure}"
    elif not (zipfile.is_zipfile(archive) or tarfile.is_tarfile(archive)):
        asked = " (the publisher may ask for a login)" if info.archive.login else ""
        problem = (
            f"is not a zip or tar file but probably a web page{asked}; get the archive with a browser from "
            f"{info.page}, save it under this name, and run the same command again"
        )
    if problem:
        if not given:
            archive.unlink()
        raise FormatError(archive, problem)
    size_bytes = archive.stat().st_size
    unpack(archive, out)
    layout = find_layout(info, out)
    if not keep_archive:
        archive.unlink()
    return Fetched(out, len(layout.entries), md5, sha256, size_bytes, as_published=published is not None)


def download(address: str, target: Path | str, *, report: Report = ignore) -> None:
    """Download ``address`` to ``target``; a transfer that fails leaves nothing."""
    target, done = Path(target), 0
    if not address.startswith(("http://", "https://")):
        raise InputError(f"cannot download {address!r}; give an address that begins with https://")
    request = Request(address, headers={"User-Agent": f"sparseshot/{__version__}"})
    try:
        with (
            urlopen(request, timeout=_TIMEOUT_S) as response,
            replacing(target) as temporary,
            temporary.open("wb") as file,
        ):
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                report(Event(f"fetching {target.name}", done, total))
            if total is not None and done != total:
                raise ConnectionError(f"{done:,} of {total:,} bytes received")
    except (HTTPException, URLError, ConnectionError, TimeoutError, SSLError) as error:
        cure = "try again later"
        if isinstance(error, HTTPError) and error.code in {401, 403, 404, 410}:
            cure = "the publisher moved it or asks for a login; get it with a browser"
        reason = error.reason if isinstance(error, URLError) else error
        raise DataNotFoundError(
            target, f"cannot get {address} ({reason or type(error).__name__}); {cure}"
        ) from error


def checksums(path: Path) -> tuple[str, str]:
    """Return the MD5 and the SHA-256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return md5, sha256


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a zip or tar file into a folder; return the new entries.

    Files are unpacked into a temporary folder and moved when all are there, so a failure leaves nothing
    behind. Names that lead out of the folder stay inside it or are refused, and so are links and devices, by
    the library. The extra files of macOS (``__MACOSX``) are left out.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    _check_size(archive, [info.file_size for info in packed.infolist()])
                    packed.extractall(temporary)
            else:
                with tarfile.open(archive) as packed:
                    _check_size(archive, [member.size for member in packed])
                    packed.extractall(temporary, filter="data")
            items = sorted(item for item in Path(temporary).iterdir() if item.name != "__MACOSX")
            for item in items:
                if (folder / item.name).exists():
                    raise OutputError(folder / item.name, "exists already; move it away, or unpack elsewhere")
            return [Path(shutil.move(item, folder / item.name)) for item in items]
    except (OutputError, FormatError):
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise FormatError(archive, f"cannot be unpacked ({error}); download it again") from error


def _check_size(archive: Path, sizes: Sequence[int]) -> None:
    """Raise if members are too many or too large; no library unpacks more than these sizes declare."""
    if len(sizes) > _MAX_FILES or sum(sizes) > _MAX_BYTES:
        limit = f"{_MAX_BYTES / 2**30:.3g} GiB or {_MAX_FILES:,} files"
        raise FormatError(archive, f"unpacks to more than {limit}; do not trust it")
