"""Fetching a data set from its publisher."""

from dataclasses import dataclass
from pathlib import Path

from sparseshot.datasets.catalogue import DatasetInfo
from sparseshot.datasets.download import OnBytes, checksums, download
from sparseshot.datasets.layout import find_layout
from sparseshot.datasets.unpack import is_archive, unpack
from sparseshot.errors import DataNotFoundError, FormatError


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
