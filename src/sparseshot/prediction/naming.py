"""Names of output folders, and fingerprints of slides."""

import re
import unicodedata
from pathlib import Path
from typing import Any

from sparseshot.errors import OutputError
from sparseshot.images.fingerprint import slide_fingerprint
from sparseshot.images.slide import Slide

_LONGEST_BYTES = 100
# Names that Windows keeps for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def safe_name(name: str, *, suffix: str = "") -> str:
    """Return a name that is one folder on every system: letters of any script, digits, ``_ .-``.

    >>> safe_name("../../etc/passwd"), safe_name("Schnitt 7 (Köln).svs"), safe_name("病理 1.tif")
    ('etc_passwd', 'Schnitt 7 _Köln_.svs', '病理 1.tif')
    """
    text = re.sub(r"[^\w .-]+", "_", unicodedata.normalize("NFC", name)).strip(" ._")
    text = text.encode()[:_LONGEST_BYTES].decode(errors="ignore").strip(" .")
    text = text if text and not _DEVICES.match(text) else f"slide {text}".strip()
    return text + suffix


def slide_identity(slide: Slide) -> dict[str, Any]:
    """Return what tells one slide from another, as JSON holds it."""
    return {
        "name": slide.name,
        "size_px": list(slide.size),
        "mpp": slide.mpp,
        "fingerprint": slide_fingerprint(slide),
    }


def folder_inside(out: Path, name: str, *, suffix: str = "") -> Path:
    """Return the folder of a name inside ``out``; a link that leads outside is an error."""
    folder = out / safe_name(name, suffix=suffix)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise OutputError(folder, f"is a link that leads out of {out}; remove it or choose another --out")
    return folder
