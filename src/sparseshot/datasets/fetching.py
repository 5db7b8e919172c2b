"""Fetching a data set from its publisher, with a checksum; an interrupted transfer is resumed."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from ssl import SSLError
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sparseshot import __version__
from sparseshot.datasets.catalogue import DatasetInfo
from sparseshot.datasets.layout import find_layout
from sparseshot.datasets.unpack import is_archive, unpack
from sparseshot.errors import DataNotFoundError, FormatError, InputError

OnBytes = Callable[[int, int | None], None]
"""Called with the bytes received and, where the server states it, the size of the file."""

_CHUNK = 2**18
_ATTEMPTS = 3
_TIMEOUT_S = 60


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
    progress: OnBytes | None = None,
) -> Fetched:
    """Download and unpack a data set into the folder ``out``.

    Args:
        info: catalogue entry.
        out: target folder, created if missing. An archive that is already there is not downloaded.
        address: alternative URL of the same archive, e.g. a mirror; the checksum is still compared.
        keep_archive: keep the archive after unpacking.
        progress: called as bytes arrive.
    """
    out = Path(out)
    if info.archive is None:
        raise DataNotFoundError(out, f"{info.title} has no address to download from; {info.how_to_get(out)}")
    out.mkdir(parents=True, exist_ok=True)
    archive = out / info.archive.file
    given = archive.exists()
    if given:
        sums = checksums(archive)
        if info.archive.md5 is not None and sums.md5 != info.archive.md5:
            raise FormatError(
                archive, f"has the MD5 {sums.md5}, the publisher's is {info.archive.md5}; remove it"
            )
    else:
        sums = download(address or info.archive.address, archive, md5=info.archive.md5, progress=progress)
    if not is_archive(archive):
        if not given:
            archive.unlink()
        asked = " (the publisher may ask for a login)" if info.archive.login else ""
        raise FormatError(
            archive,
            f"is not a zip or tar file but probably a web page{asked}; get the archive with a browser from "
            f"{info.page}, save it under this name, and run the same command again",
        )
    size_bytes = archive.stat().st_size
    unpack(archive, out)
    layout = find_layout(info, out)
    if not keep_archive:
        archive.unlink()
    return Fetched(out, len(layout.entries), *sums, size_bytes, as_published=info.archive.md5 is not None)


class Checksums(NamedTuple):
    """Hashes of a file."""

    md5: str
    sha256: str


class _BrokenOffError(Exception):
    """The connection ended before the file did."""


def download(
    address: str, target: Path | str, *, md5: str | None = None, progress: OnBytes | None = None
) -> Checksums:
    """Download ``address`` to ``target`` and return its checksums.

    The bytes are collected in ``target`` + ``.part``, which is renamed when it is complete and verified. An
    interrupted transfer is resumed, at once or by the next call, if the server supports it and its file has
    not changed (the ETag or date of the first attempt is stored beside the bytes).
    """
    target = Path(target)
    if not address.startswith(("http://", "https://")):
        raise InputError(f"cannot download {address!r}; give an address that begins with https://")
    part = target.with_name(target.name + ".part")
    for attempt in range(_ATTEMPTS):
        try:
            _transfer(address, part, progress or (lambda done, total: None))  # noqa: ARG005
            break
        except (_BrokenOffError, HTTPException, URLError, ConnectionError, TimeoutError, SSLError) as error:
            if attempt == _ATTEMPTS - 1 or (isinstance(error, HTTPError) and error.code < 500):
                raise _failed(address, target, part, error) from error
    sums = checksums(part)
    if md5 is not None and sums.md5 != md5:
        _discard(part)
        raise FormatError(
            target,
            f"the file from {address} has the MD5 {sums.md5}, the publisher's is {md5}; it was removed. "
            "Try again; if that does not help, the publisher changed the file",
        )
    part.replace(target)
    _note(part).unlink(missing_ok=True)
    return sums


def checksums(path: Path) -> Checksums:
    """Return the hashes of a file."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
    return Checksums(md5.hexdigest(), sha256.hexdigest())


def _transfer(address: str, part: Path, progress: OnBytes) -> None:
    begin, validator = _resumable(address, part)
    headers = {"User-Agent": f"sparseshot/{__version__}", "Accept-Encoding": "identity"}
    if begin:
        # If-Range: the rest of the same file, or all of it if the file has changed.
        headers |= {"Range": f"bytes={begin}-", "If-Range": validator}
    try:
        response = urlopen(Request(address, headers=headers), timeout=_TIMEOUT_S)
    except HTTPError as error:
        if error.code != 416 or not begin:
            raise
        if error.headers.get("Content-Range") == f"bytes */{begin}":
            return  # the file was complete already
        _discard(part)
        raise _BrokenOffError("the partial file is larger than the server's") from error
    with response:
        begin, total = _extent(response, begin)
        _keep_note(address, part, response.headers)
        with part.open("r+b" if begin else "wb") as file:
            file.truncate(begin)
            file.seek(begin)
            done = begin
            progress(done, total)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done != total:
        raise _BrokenOffError(f"{done:,} of {total:,} bytes received")


def _extent(response: HTTPResponse, asked: int) -> tuple[int, int | None]:
    """Return the first byte of the response, and the size of the whole file where stated."""
    if response.status == 206:
        unit_range, _, whole = response.headers.get("Content-Range", "").partition("/")
        if unit_range.startswith(f"bytes {asked}-"):
            return asked, int(whole) if whole.isdigit() else None
        raise _BrokenOffError(f"asked from byte {asked}, got {unit_range or 'no Content-Range'}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _resumable(address: str, part: Path) -> tuple[int, str]:
    """Return the number of bytes received before, and the validator of the server's file."""
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
        size = part.stat().st_size
        validator = note["validator"] if note["address"] == address else None
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""
    return (size, validator) if isinstance(validator, str) and validator else (0, "")


def _keep_note(address: str, part: Path, headers: Mapping[str, Any]) -> None:
    etag = headers.get("ETag") or ""
    # A weak ETag does not guarantee the same bytes.
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified") or ""
    _note(part).write_text(json.dumps({"address": address, "validator": validator}), encoding="utf-8")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _failed(address: str, target: Path, part: Path, error: Exception) -> DataNotFoundError:
    here = part.stat().st_size if part.exists() else 0
    cure = f"{here:,} bytes are kept; run the same command again to resume" if here else "try again later"
    if isinstance(error, HTTPError) and error.code in {401, 403, 404, 410}:
        cure = "the publisher moved it or asks for a login; get it with a browser"
    reason = error.reason if isinstance(error, URLError) else error
    return DataNotFoundError(target, f"cannot get {address} ({reason or type(error).__name__}); {cure}")
