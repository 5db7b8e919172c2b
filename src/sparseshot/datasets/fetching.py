"""Get a data set from its publisher, or tell where to get it where there is no direct address."""

from dataclasses import dataclass
from pathlib import Path

from sparseshot.datasets.catalogue import DatasetInfo
from sparseshot.datasets.download import Checksums, Progress, checksums, download
from sparseshot.datasets.layout import find_layout
from sparseshot.datasets.unpack import is_archive, unpack
from sparseshot.errors import DataNotFoundError, FormatError


@dataclass(frozen=True)
class Fetched:
    """What :func:`fetch` brought.

    Attributes:
        folder: the root to give to :func:`~sparseshot.datasets.load_dataset`.
        images: how many images are there now.
        size_bytes: of the archive.
        checksums: of the archive.
        verified: the publisher's checksum is known, and it is this.
    """

    folder: Path
    images: int
    size_bytes: int
    checksums: Checksums
    verified: bool


def fetch(
    info: DatasetInfo,
    out: Path | str,
    *,
    address: str | None = None,
    keep_archive: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Download and unpack a data set into the folder ``out``.

    Args:
        info: its entry in the catalogue.
        out: where it goes; made if it is not there. An archive that lies there already is not downloaded.
        address: another place of the same archive, e.g. a mirror of your own; the checksum still counts.
        keep_archive: do not remove the archive in the end.
        progress: called as the bytes come.
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
            f"is no zip or tar file but probably a web page{asked}; get the archive with a browser from "
            f"{info.page}, save it under this name, and run the same command again",
        )
    size_bytes = archive.stat().st_size
    unpack(archive, out)
    layout = find_layout(info, out)
    if not keep_archive:
        archive.unlink()
    return Fetched(out, len(layout.entries), size_bytes, sums, verified=info.archive.md5 is not None)
