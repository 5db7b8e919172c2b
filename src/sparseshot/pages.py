"""Markdown as one HTML page that needs no other file.

Pages are written in Markdown and rendered by markdown-it with HTML switched off. Text that comes from files
goes through :func:`escape` or :func:`code`, so that it is shown as it is.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape as escape_html
from importlib.resources import files
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_TYPES = {"svg": "image/svg+xml", "jpg": "image/jpeg", "png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """A picture of a page.

    Attributes:
        file: its file name; the suffix tells the format: svg, jpg or png.
        caption: Markdown, shown below the picture and as its alternative text.
        draw: returns the file's bytes; called once, when they are first needed.
    """

    file: str
    caption: str
    draw: Callable[[], bytes] = field(repr=False)

    @cached_property
    def content(self) -> bytes:
        """The file's bytes."""
        return self.draw()


Parts = list[str | Picture]
"""A page as Markdown blocks and pictures."""


def escape(text: object) -> str:
    r"""Return text as Markdown that shows it literally, in one line.

    >>> escape("<b>_a_ [x](y)\n# 3 * 4")
    '\\<b\\>\\_a\\_ \\[x\\](y) \\# 3 \\* 4'
    """
    return re.sub(r"([\\`*_\[\]<>#&~!])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Return text as inline code.

    >>> code("a`b"), code("tnbc-*")
    ('`` a`b ``', '`tnbc-*`')
    """
    content = " ".join(str(text).split())
    if "`" not in content:
        return f"`{content}`"
    fence = "`" * (1 + max(map(len, re.findall("`+", content))))
    return f"{fence} {content} {fence}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    r"""Return a Markdown table; columns after the first ``text_columns`` are numbers and align right.

    >>> print(table(["method", "30 %"], [["a|b", "0.77"]]))
    | method | 30 % |
    |---|---:|
    | a\|b | 0.77 |
    """
    rule = ["---" if column < text_columns else "---:" for column in range(len(header))]
    return "\n".join([_row(header), f"|{'|'.join(rule)}|", *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def to_markdown(parts: Sequence[str | Picture], *, pictures: str | None) -> str:
    """Join the parts of a page; ``pictures`` is the folder the pictures are linked in, None omits them."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif pictures is not None:
            place = f"{pictures}/{part.file}" if pictures else part.file
            texts += [f"![{part.caption}]({place})", f"*{part.caption}*"]
    return "\n\n".join(texts) + "\n"


def to_html(markdown: str, *, title: str, pictures: Mapping[str, bytes]) -> str:
    """Render Markdown as a page, with its pictures inside and links to its headings of level 2 at the top.

    Args:
        markdown: the text; it links pictures by their file names.
        title: of the browser's window.
        pictures: the bytes of each linked picture, by file name. Other pictures are not loaded.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    sections: dict[str, str] = {}
    first = len(tokens)
    for place, token in enumerate(tokens):
        for child in token.children or ():
            if child.type == "image":
                _embed(child, pictures)
        if token.type == "heading_open" and token.tag == "h2":
            first = min(first, place)
            text = "".join(child.content for child in tokens[place + 1].children or ())
            anchor = f"{len(sections) + 1}-{re.sub(r'[^a-z0-9]+', '-', text.casefold()).strip('-')}"
            token.attrSet("id", anchor)
            sections[anchor] = text
    links = " ".join(f'<a href="#{anchor}">{escape_html(text)}</a>' for anchor, text in sections.items())
    head, body = (
        parser.renderer.render(part, parser.options, {}) for part in (tokens[:first], tokens[first:])
    )
    style = files("sparseshot").joinpath("pages.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape_html(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{head}{f'<nav>{links}</nav>' if links else ''}\n{body}</body>\n</html>\n"
    )


def _embed(image: Token, pictures: Mapping[str, bytes]) -> None:
    file = unquote(str(image.attrGet("src")))
    if file in pictures:
        data = base64.b64encode(pictures[file]).decode()
        image.attrSet("src", f"data:{_TYPES[file.rpartition('.')[2]]};base64,{data}")
    else:
        image.attrs.pop("src")
