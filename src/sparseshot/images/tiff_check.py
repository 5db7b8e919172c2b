"""Check of a TIFF's directories before any library reads them.

A file of a few kilobytes can hold a chain of directories without end, or claim billions of tiles. Readers
that believe it take all memory or never return.
"""

import math
import os
import re
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import tifffile

from sparseshot.errors import SlideError

TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""First bytes of TIFF and BigTIFF in either byte order."""

_MAX_DIRECTORIES = 2**12
_MAX_TAGS = 2**10
_MAX_TILES = 2**22
"""In all directories together; a slide of 250,000 × 250,000 pixels has a million tiles of 256 × 256."""
_MAX_PLANES = 2**12
_TYPE_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_TILE_OFFSETS = {273, 324}
_SUB_DIRECTORIES = 330
_DESCRIPTION = 270


def is_tiff(path: Path) -> bool:
    """Return whether a file begins as a TIFF."""
    with path.open("rb") as file:
        return file.read(4) in TIFF_MAGIC


@contextmanager
def opened_tiff(path: Path) -> Iterator[tifffile.TiffFile]:
    """Open a TIFF by tifffile after a check of its directories; files that it refers to are not opened."""
    with path.open("rb") as file:
        try:
            _check(file)
        except ValueError as error:
            raise SlideError(path, f"{error}; the file is damaged, copy it again") from error
    with tifffile.TiffFile(path, _multifile=False) as tiff:
        yield tiff


def _check(file: BinaryIO) -> None:
    """Raise ValueError if the directories of a TIFF are without end or claim the impossible."""
    end = file.seek(0, os.SEEK_END)

    def read(offset: int, length: int) -> bytes:
        file.seek(min(offset, end))
        return file.read(length)

    start = read(0, 4)
    order: Literal["little", "big"] = "little" if start[:1] == b"I" else "big"
    is_big = start in TIFF_MAGIC[2:]
    head, word = (8, 8) if is_big else (2, 4)  # bytes of the number of entries, and of an offset
    entry = struct.Struct(f"{'<' if order == 'little' else '>'}HH{'QQ' if is_big else 'II'}")
    first = int.from_bytes(read(word, word), order)
    chain, reduced = deque([first]), deque[int]()
    seen, tiles = {0}, 0
    while chain or reduced:  # the chain first; those of reduced resolution may also be in it
        is_chained = bool(chain)
        offset = chain.popleft() if is_chained else reduced.popleft()
        if offset in seen:
            if is_chained and offset:
                raise ValueError("its directories refer to each other in a circle")
            continue
        if len(seen) > _MAX_DIRECTORIES:
            raise ValueError(f"it has more than {_MAX_DIRECTORIES:,} directories")
        seen.add(offset)
        count = int.from_bytes(read(offset, head), order)
        entries = read(offset + head, min(count, _MAX_TAGS + 1) * entry.size)
        if not 0 < count <= _MAX_TAGS or len(entries) < count * entry.size:
            raise ValueError(f"the directory at byte {offset:,} has {count:,} entries, in {end:,} bytes")
        if is_chained:
            chain.append(int.from_bytes(read(offset + head + len(entries), word), order))
        for tag, kind, number, value in entry.iter_unpack(entries):
            width = _TYPE_BYTES.get(kind, 1)
            if number * width > end:
                raise ValueError(f"its tag {tag} claims {number * width:,} bytes, in {end:,} bytes")
            is_read = tag in (_SUB_DIRECTORIES, _DESCRIPTION) and number * width > word
            content = read(value, min(number * width, 2**24)) if is_read else b""
            tiles += number if tag in _TILE_OFFSETS else 0
            if tag == _SUB_DIRECTORIES:
                parts = [content[i : i + width] for i in range(0, len(content), width)]
                reduced += [int.from_bytes(part, order) for part in parts] or [value]
            if tag == _DESCRIPTION and (planes := _ome_planes(content)) > _MAX_PLANES:
                raise ValueError(f"it claims an image of {planes:,} planes")
        if tiles > _MAX_TILES:
            raise ValueError(f"it claims more than {_MAX_TILES:,} tiles")


def _ome_planes(text: bytes) -> int:
    """Return the largest number of planes that an image in OME-XML claims."""
    return max(
        (
            math.prod(max(1, int(size)) for size in re.findall(rb"Size[ZCT]\s*=\s*[\"'](\d{1,12})", pixels))
            for pixels in re.findall(rb"<(?:\w{1,99}:)?Pixels\b([^<>]*)>", text)
        ),
        default=0,
    )
