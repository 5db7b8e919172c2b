"""Fingerprints that tell one slide from another without reading gigabytes."""

import hashlib
import os
from pathlib import Path

from sparseshot.images.slide import Slide

_ENDS_BYTES = 2**20
_SAMPLES, _SAMPLE_BYTES = 512, 2**12


def slide_fingerprint(slide: Slide) -> str:
    """Return a hash of a slide's size, pixel size and content, independent of its path.

    Of a file, both ends and 512 evenly spread samples are hashed: the ends hold the directories of most
    formats, the samples differ even between uncompressed slides with equal margins. The names and sizes of
    the files in the folder of an MRXS slide are included.
    """
    digest = hashlib.sha256(f"{slide.size} {slide.mpp!r}".encode())
    path: Path | None = getattr(slide, "path", None)
    if path is None:
        digest.update(repr(slide).encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        last = max(0, size - _ENDS_BYTES)
        samples = (round(last * k / _SAMPLES) for k in range(1, _SAMPLES))
        lengths = {0: _ENDS_BYTES, **dict.fromkeys(samples, _SAMPLE_BYTES), last: _ENDS_BYTES}
        for start, length in lengths.items():
            file.seek(start)
            digest.update(file.read(length))
    folder = path.with_suffix("")
    for part in sorted(folder.glob("*")) if path.suffix.lower() == ".mrxs" else ():
        digest.update(f"{part.name} {part.stat().st_size}".encode(errors="surrogateescape"))
    return digest.hexdigest()
