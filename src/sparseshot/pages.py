"""Pages of slides, cohorts, experiments and the demo: Markdown as one HTML file that needs no other.

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
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sparseshot.files import replacing

_TYPES = {"svg": "image/svg+xml", "jpg": "image/jpeg", "png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """A picture of a page.

    Attributes:
        file: its file name; the suffix tells the format: svg, jpg or png.
        caption: Markdown, shown beside the picture and as its alternative text.
        draw: the file's bytes, or a function that returns them, called once, when they are first needed.
    """

    file: str
    caption: str
    draw: Callable[[], bytes] | bytes = field(repr=False)

    @cached_property
    def content(self) -> bytes:
        """The file's bytes."""
        return self.draw if isinstance(self.draw, bytes) else self.draw()


Part = str | Picture | tuple[Picture | None, ...]
"""A Markdown block, a picture above its caption, or pictures side by side; None leaves a gap."""
Parts = list[Part]
"""A page; it begins with its heading."""


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


def to_markdown(parts: Sequence[Part], *, pictures: str | None) -> str:
    """Join the parts of a page; ``pictures`` is the folder the pictures are linked in, None omits them."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif pictures is None:
            continue
        elif isinstance(part, Picture):
            texts += [_link(part, pictures), f"*{part.caption}*"]
        else:
            captions = [each.caption if each else "" for each in part]
            links = [_link(each, pictures) if each else "" for each in part]
            texts.append(table(captions, [links], text_columns=len(part)))
    return "\n\n".join(texts) + "\n"


def _link(picture: Picture, folder: str) -> str:
    return f"![{picture.caption}]({folder}{'/' if folder else ''}{picture.file})"


def pictures_of(parts: Sequence[Part]) -> dict[str, Picture]:
    """Return the pictures of a page by file name."""
    groups = [part if isinstance(part, tuple) else (part,) for part in parts]
    return {each.file: each for group in groups for each in group if isinstance(each, Picture)}


def write_page(parts: Sequence[Part], path: Path) -> None:
    """Write a page as HTML."""
    with replacing(path) as temporary:
        temporary.write_text(to_html(parts), encoding="utf-8", errors="replace")


def to_html(parts: Sequence[Part]) -> str:
    """Return a page as HTML, with its pictures inside and links to its headings of level 2 at the top.

    Pictures that the Markdown links to elsewhere are not loaded.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(to_markdown(parts, pictures=""))
    pictures = pictures_of(parts)
    title = _text(tokens[1]) if tokens and tokens[0].tag == "h1" else ""
    sections: dict[str, str] = {}
    first = len(tokens)
    for place, token in enumerate(tokens):
        for child in token.children or ():
            if child.type == "image":
                _embed(child, pictures)
        if token.type == "heading_open" and token.tag == "h2":
            first = min(first, place)
            text = _text(tokens[place + 1])
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


def _text(token: Token) -> str:
    return "".join(child.content for child in token.children or ())


def _embed(image: Token, pictures: Mapping[str, Picture]) -> None:
    file = unquote(str(image.attrGet("src")))
    if file in pictures:
        data = base64.b64encode(pictures[file].content).decode()
        image.attrSet("src", f"data:{_TYPES[file.rpartition('.')[2]]};base64,{data}")
    else:
        image.attrs.pop("src")
