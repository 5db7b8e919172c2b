"""Blocks as one HTML page that needs nothing else: no network, no other file."""

import base64
import re
from collections.abc import Sequence
from html import escape
from typing import assert_never

from sparseshot.experiments.report.document import Block, Bullets, Figure, Fold, Heading, Paragraph, Table

_STYLE = """
:root { --ink: #1b1f24; --soft: #5b6470; --line: #d8dde3; --tint: #f5f7f9; --accent: #0b6e8f; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.4rem; margin: 3rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p, ul { max-width: 50rem; margin: .6rem 0; }
ul { padding-left: 1.3rem; } li { margin: .25rem 0; }
.quiet { color: var(--soft); font-size: .88rem; }
code { font: .87em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: var(--tint);
  padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: .8rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eceff2; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line); }
th.w, td.w { text-align: left; white-space: normal; }
td:first-child, th:first-child { padding-left: 0; }
.grouped td { border-bottom: 0; } .grouped tr.line td { border-top: 1px solid var(--line); }
tr.quiet td { color: var(--soft); }
figure { margin: 1rem 0 1.4rem; } figure img { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .85rem; max-width: 50rem; margin-top: .35rem; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--accent); }
nav { background: var(--tint); padding: .7rem 1rem; margin: 1.2rem 0; font-size: .9rem; border-radius: 4px; }
nav a { color: var(--accent); text-decoration: none; margin-right: 1.1rem; white-space: nowrap; }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; } nav { display: none; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; } }
"""

_TYPES = {"svg": "image/svg+xml", "jpg": "image/jpeg"}


def to_html(blocks: Sequence[Block], *, title: str) -> str:
    """Write blocks as a page; the headings of level 2 become its table of contents."""
    anchors = {block.text: _anchor(block.text) for block in blocks if isinstance(block, Heading)}
    links = " ".join(
        f'<a href="#{anchors[block.text]}">{_inline(block.text)}</a>'
        for block in blocks
        if isinstance(block, Heading) and block.level == 2
    )
    parts: list[str] = []
    for block in blocks:
        if links and isinstance(block, Heading) and block.level == 2:
            parts.append(f"<nav>{links}</nav>")
            links = ""
        parts.append(_block(block))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{_anchor(text)}">{_inline(text)}</h{level}>'
        case Paragraph(text, quiet):
            return f"<p{_class('quiet' if quiet else '')}>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _table(block)
        case Figure(caption=caption, kind=kind):
            data = base64.b64encode(block.content).decode()
            image = f'<img alt="{escape(caption)}" src="data:{_TYPES[kind]};base64,{data}">'
            return f"<figure>{image}<figcaption>{_inline(caption)}</figcaption></figure>"
        case Fold(title, blocks):
            inside = "\n".join(map(_block, blocks))
            return f"<details><summary>{_inline(title)}</summary>\n{inside}\n</details>"
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{_class('w' if column < table.words else '')}>{_inline(text)}</{tag}>"
            for column, text in enumerate(texts)
        )

    rows = []
    for index, row in enumerate(table.rows):
        names = [name for name, chosen in (("line", table.lines), ("quiet", table.quiet)) if index in chosen]
        rows.append(f"<tr{_class(' '.join(names))}>{cells('td', row)}</tr>")
    head = f"<thead><tr>{cells('th', table.header)}</tr></thead>"
    kind = _class("grouped" if table.lines else "")
    return f'<div class="scroll"><table{kind}>{head}<tbody>' + "".join(rows) + "</tbody></table></div>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _inline(text: str) -> str:
    safe = escape(text, quote=False)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")
