"""Files of a DICOM series: a slide has one for each level, and more for label and overview.

OpenSlide opens the slide from any of them, and finds the others in the same folder.
"""

import re
from collections.abc import Iterable
from pathlib import Path

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
