"""A report as blocks, before it becomes HTML or Markdown.

Text may hold **bold** and `code`, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the page."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; a quiet one is a remark."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        header: of the columns.
        rows: of texts.
        words: how many of the first columns are words; the others are numbers and stand to the right.
        lines: before which rows a line is drawn, to group them.
        quiet: which rows stand back.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    lines: frozenset[int] = frozenset()
    quiet: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        name: fit for a file, without suffix.
        caption: under it; also what is read to who cannot see it.
        draw: makes the file's bytes; called when they are first wanted, since drawing takes its time.
        kind: the file's format.
    """

    name: str
    caption: str
    draw: Callable[[], bytes] = field(repr=False)
    kind: Literal["svg", "jpg"] = "svg"

    @cached_property
    def content(self) -> bytes:
        """The file's bytes."""
        return self.draw()

    @property
    def file(self) -> str:
        """Name of the file."""
        return f"{self.name}.{self.kind}"


@dataclass(frozen=True)
class Fold:
    """Blocks that are shown when asked for."""

    title: str
    blocks: Sequence["Block"]


Block = Heading | Paragraph | Bullets | Table | Figure | Fold


def figures_of(blocks: Sequence[Block]) -> list[Figure]:
    """Return every figure, also those folded away."""
    found = []
    for block in blocks:
        if isinstance(block, Figure):
            found.append(block)
        elif isinstance(block, Fold):
            found += figures_of(block.blocks)
    return found
