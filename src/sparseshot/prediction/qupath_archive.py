"""All cells of a slide as a zip of GeoJSON that QuPath opens, written while the cells are found."""

import hashlib
import io
import uuid
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.formats import qupath_write
from sparseshot.cells.formats.options import WriteOptions
from sparseshot.cells.repairs import Repairs
from sparseshot.files import replacing
from sparseshot.models.finder import PLACE_DECIMALS

PART_CELLS = 20_000
"""QuPath reads each part of the zip whole into memory, so they stay small."""

_DEFLATE_LEVEL = 4
"""Half the time of level 6, and a file an eighth larger."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # a zip holds times; one time for all makes equal content equal bytes
_HYPHENS = (8, 13, 18, 23)  # of the text of a UUID
_NAMESPACE = uuid.UUID("4d8f8f2e-7d0a-5f0c-9a56-6f5ae2b6c1d3")


class QuPathArchive:
    """A zip that is written part by part; another thread compresses a part while the next one is made.

    Attributes:
        shards: how many were added.
    """

    def __init__(self, archive: zipfile.ZipFile, pool: ThreadPoolExecutor, name: str) -> None:
        self._archive, self._pool, self._name = archive, pool, name
        self._waiting: list[Cells] = []
        self._writing: Future[None] | None = None
        self._parts = self.shards = 0

    @classmethod
    @contextmanager
    def writing(cls, path: Path, name: str) -> Iterator[Self]:
        """Write to a path; the zip is there when the block ends, with one part at least, if an empty one.

        Args:
            path: of the zip.
            name: of the slide; the ids of cells are made of it.
        """
        with (
            replacing(path) as temporary,
            zipfile.ZipFile(temporary, "w") as archive,
            ThreadPoolExecutor(1, thread_name_prefix="qupath") as pool,
        ):
            yield cls(archive, pool, name)

    def add(self, shard: Cells) -> None:
        """Add the cells of the next shard; small ones are joined, and large ones cut."""
        self.shards += 1
        self._waiting.append(shard)
        if sum(map(len, self._waiting)) >= PART_CELLS:
            cells = Cells.concatenate(self._waiting)
            while len(cells) >= PART_CELLS:
                self._write(cells[:PART_CELLS])
                cells = cells[PART_CELLS:]
            self._waiting = [cells]

    def finish(self, nothing: Cells) -> None:
        """Write the last part; ``nothing`` is an empty table."""
        cells = Cells.concatenate([nothing, *self._waiting])
        if len(cells) or not self._parts:
            self._write(cells)
        if self._writing is not None:
            self._writing.result()

    def _write(self, part: Cells) -> None:
        text = io.BytesIO()
        named = replace(part, id=_ids(part, self._name))
        qupath_write.write(named, text, WriteOptions(Repairs(), decimals=PLACE_DECIMALS))
        entry = zipfile.ZipInfo(f"cells-{self._parts:05d}.geojson", _LONG_AGO)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3  # else the system it is written on would be told
        if self._writing is not None:
            self._writing.result()
        self._writing = self._pool.submit(
            self._archive.writestr, entry, text.getbuffer(), compresslevel=_DEFLATE_LEVEL
        )
        self._parts += 1


def _ids(cells: Cells, name: str) -> NDArray[np.bytes_]:
    """Name every cell by a UUID made of slide and shape: version 5, the same whenever it is made."""
    if cells.outline is None:
        shapes = np.ascontiguousarray(cells.xy, "<f8").view("V16").ravel().tolist()
    else:
        shapes = shapely.to_wkb(cells.outline, byte_order=1)
    start = hashlib.sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False)
    digests = []
    for shape in shapes:
        digest = start.copy()
        digest.update(shape)
        digests.append(digest.digest())
    octets = np.frombuffer(b"".join(digests), np.uint8).reshape(len(cells), start.digest_size)[:, :16].copy()
    octets[:, 6] = octets[:, 6] & 0x0F | 0x50  # version 5
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # variant of RFC 9562
    letters = np.frombuffer(octets.tobytes().hex().encode(), "S1").reshape(len(cells), 32)
    names = np.full((len(cells), 36), b"-")
    names[:, [k for k in range(36) if k not in _HYPHENS]] = letters
    return names.view("S36").ravel()
