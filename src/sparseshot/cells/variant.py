"""A sparse variant as a small file that selects the same marks on every machine."""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import orjson
from numpy.typing import NDArray

from sparseshot.cells.subsets import apply_masks, nested_subsets
from sparseshot.cells.table import Cells
from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.files import write_json

KIND = "sparseshot variant 1"
LARGEST_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Variant:
    """Marks of a data set that belong to a variant.

    Attributes:
        fraction: of the marks, in [0, 1].
        seed: of the choice.
        source: hash of the tables the choice was made from; see :func:`source_hash`.
        masks: for each table, which of its rows belong to the variant.

    >>> cells = Cells([[1, 2], [3, 4], [5, 6]])
    >>> variant = Variant.choose(cells, 0.3, seed=0)
    >>> [table.xy.tolist() for table in variant.apply(cells)]
    [[[1.0, 2.0]]]
    """

    fraction: float
    seed: int
    source: str
    masks: tuple[NDArray[np.bool_], ...]

    @classmethod
    def choose(cls, tables: Cells | Sequence[Cells], fraction: float, *, seed: int) -> Self:
        """Choose a variant of a data set; see :func:`~sparseshot.cells.subsets.nested_subsets`."""
        masks = nested_subsets(tables, [fraction], seed=seed)[fraction]
        return cls(float(fraction), seed, source_hash(tables), tuple(masks))

    def apply(self, tables: Cells | Sequence[Cells]) -> list[Cells]:
        """Return the marks of this variant; the tables must be those it was chosen from."""
        tables = [tables] if isinstance(tables, Cells) else tables
        came = source_hash(tables)
        if came != self.source:
            raise InputError(
                f"this variant was chosen from other marks: their hash is {self.source}, that of these "
                f"{sum(map(len, tables)):,} marks is {came}; give the tables it was made from, in their order"
            )
        return apply_masks(tables, self.masks)

    def write(self, path: Path | str) -> None:
        """Write the variant as JSON, with the rows of each table as packed bits."""
        content = {
            "kind": KIND,
            "fraction": self.fraction,
            "seed": self.seed,
            "source": self.source,
            "marks": [int(mask.sum()) for mask in self.masks],
            "of": [len(mask) for mask in self.masks],
            "rows": [_packed(mask) for mask in self.masks],
        }
        write_json(path, content)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a variant."""
        path = Path(path)
        if not path.is_file():
            raise DataNotFoundError(path, "there is no such file")
        try:
            content = orjson.loads(path.read_bytes())
            if content["kind"] != KIND:
                raise FormatError(path, f"is a {content['kind']!r}, not a {KIND!r}")
            masks = tuple(
                _unpacked(text, length) for text, length in zip(content["rows"], content["of"], strict=True)
            )
            if [int(mask.sum()) for mask in masks] != content["marks"]:
                raise FormatError(path, "its number of rows is not the stated one; copy the file again")
            return cls(float(content["fraction"]), int(content["seed"]), str(content["source"]), masks)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise FormatError(path, f"is not a variant file: {error}") from None


def source_hash(tables: Cells | Sequence[Cells]) -> str:
    """Return a hash of the number, ids, classes and coordinates of marks.

    Coordinates are rounded to pixels, at an offset from pixel centres and edges: centroids computed on two
    machines could fall on either side of those.
    """
    digest = hashlib.blake2b(digest_size=16)
    for table in [tables] if isinstance(tables, Cells) else tables:
        names = np.array([*table.classes, ""], np.str_)
        used = np.unique(names[np.unique(table.label)])
        rank = np.searchsorted(used, names).astype("<i2")  # whatever the order of the classes
        digest.update("\n".join([str(len(table)), *used]).encode() + b"\0")
        digest.update(rank[table.label].tobytes())
        digest.update(np.floor(table.xy + 0.381966).astype("<i8").tobytes())
        if table.id is not None:
            ids = table.id if table.id.dtype.kind == "S" else table.id.astype("<i8")
            digest.update(ids.tobytes() if ids.dtype.kind == "i" else b"\n".join(ids.tolist()))
    return digest.hexdigest()


def _packed(mask: NDArray[np.bool_]) -> str:
    return base64.b64encode(zlib.compress(np.packbits(mask).tobytes(), 9)).decode()


def _unpacked(text: str, length: int) -> NDArray[np.bool_]:
    wanted = -(-length // 8)
    if not 0 <= wanted <= LARGEST_BYTES:
        raise ValueError(f"a table of {length} rows")
    bits = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), max(wanted, 1))
    if len(bits) != wanted:
        raise ValueError(f"bits for {8 * len(bits)} rows of a table with {length}")
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=length).astype(bool)
