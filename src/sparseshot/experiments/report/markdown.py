"""Blocks as Markdown."""

from collections.abc import Sequence
from typing import assert_never

from sparseshot.experiments.report.document import Block, Bullets, Figure, Fold, Heading, Paragraph, Table


def to_markdown(blocks: Sequence[Block], *, figures: str | None = None) -> str:
    r"""Write blocks as Markdown; ``figures`` is where their files are, None leaves them out.

    >>> print(to_markdown([Heading(2, "TNBC"), Table(["method", "30 %"], [["a|b", "0.77"]])]))
    ## TNBC
    <BLANKLINE>
    | method | 30 % |
    |---|---:|
    | a\|b | 0.77 |
    <BLANKLINE>
    """
    return "\n".join(part for block in blocks if (part := _block(block, figures)))


def _block(block: Block, figures: str | None) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}\n"
        case Paragraph(text, quiet):
            return f"*{text}*\n" if quiet and "*" not in text else f"{text}\n"
        case Bullets(items):
            return "".join(f"- {item}\n" for item in items)
        case Table():
            return _table(block)
        case Figure(caption=caption):
            place = f"{figures}/{block.file}" if figures else block.file
            return "" if figures is None else f"![{caption}]({place})\n\n*{caption}*\n"
        case Fold(title, blocks):
            return f"### {title}\n\n{to_markdown(blocks, figures=figures)}"
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    aligned = ["---" if column < table.words else "---:" for column in range(len(table.header))]
    lines = [_line(table.header), f"|{'|'.join(aligned)}|", *map(_line, table.rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
