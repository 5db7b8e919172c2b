"""What a reader and a writer may be told; each takes what concerns it."""

from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from sparseshot.cells.repairs import Repairs


class Source(NamedTuple):
    """An open file and the name that messages call it by."""

    file: BinaryIO
    name: str


@dataclass(frozen=True)
class ReadOptions:
    """What :func:`~sparseshot.cells.formats.registry.read_cells` was asked, and where repairs are counted."""

    repairs: Repairs
    exhaustive_class: str = "Exhaustive"
    mpp: float | None = None
    image: str | int | None = None
    columns: tuple[str, ...] | None = None
    size_px: tuple[int, int] | None = None


@dataclass(frozen=True)
class WriteOptions:
    """What :func:`~sparseshot.cells.formats.registry.write_cells` was asked, and where losses are counted."""

    losses: Repairs
    exhaustive_class: str = "Exhaustive"
    size_px: tuple[int, int] | None = None
    decimals: int = 2
    suffix: str = ""
