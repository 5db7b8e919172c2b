"""Arguments of readers and writers; each uses those that it needs."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells
from sparseshot.errors import InputError

MEMBER = "sparseshot"
"""Member of JSON files, ignored by other programs, for what their format cannot hold."""


class OpenFile(NamedTuple):
    """An open file and its name in messages."""

    file: BinaryIO
    name: str


@dataclass(frozen=True)
class ReadOptions:
    """Arguments of :func:`~sparseshot.cells.formats.registry.read_cells`, and the count of repairs."""

    repairs: Repairs
    exhaustive_class: str = "Exhaustive"
    mpp: float | None = None
    image: str | int | None = None
    columns: tuple[str, ...] | None = None
    size_px: tuple[int, int] | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Arguments of :func:`~sparseshot.cells.formats.registry.write_cells`, and the count of losses."""

    losses: Repairs
    exhaustive_class: str = "Exhaustive"
    size_px: tuple[int, int] | None = None
    decimals: int = 2
    suffix: str = ""

    def count_lost(self, cells: Cells, *columns: str) -> None:
        """Count the columns that the format cannot hold."""
        for column in columns:
            values = getattr(cells, column)
            if column == "classes":
                self.losses.count("classes left out", len(values) if len(values) > 1 else 0)
            elif column == "measurements":
                self.losses.count("measurements left out", len(values))
            elif column == "region_notes":
                self.losses.count(
                    "notes of regions left out", sum(map(bool, () if values is None else values))
                )
            elif column == "regions":
                self.losses.count("exhaustive regions left out", len(values))
            elif column == "score":
                self.losses.count("scores left out", 0 if values is None else len(cells))
            elif values is not None:
                what = {"outline": "outlines", "nucleus": "nuclei", "name": "names"}[column]
                self.losses.count(f"{what} left out", sum(value is not None for value in values))


def optional(module: str, *, extra: str) -> Any:
    """Import a module that only an extra installs, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f'{error}; install it with: pip install "sparseshot[{extra}]"') from error
