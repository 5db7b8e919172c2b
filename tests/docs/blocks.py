"""The code blocks, inline commands, links and headings of a Markdown page."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

PROGRAMS = ("sparseshot", "make", "python", "pip", "torchrun", "srun", "ray")


@dataclass(frozen=True)
class Block:
    """A code block: ``language`` is what the fence says, or ``indented``."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Typed:
    """A command, and the output shown below it, or None."""

    words: tuple[str, ...]
    shown: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page in order."""
    found = []
    for token in _tokens(page):
        if token.type in {"fence", "code_block"}:
            language = token.info.strip() if token.type == "fence" else "indented"
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(page, line, language, token.content))
    return found


def inline_code(page: Path) -> Iterator[str]:
    """Yield the inline code of a page."""
    for token in _tokens(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def links_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the target and anchor of every link and picture inside the project."""
    for token in _tokens(page):
        for child in token.children or ():
            target = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if target and not target.startswith(("http://", "https://", "mailto:")):
                path, _, anchor = target.partition("#")
                yield path, anchor


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings, as both GitHub and MkDocs form them."""
    tokens = _tokens(page)
    titles = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def shell_commands(block: Block) -> list[Typed] | None:
    """Return the commands of a block, or None if it is a formula, a diagram or a message."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        return _session(lines)
    if block.language == "indented" and not any(line.split(" ")[0] in PROGRAMS for line in lines):
        return None
    if block.language not in {"sh", "indented"}:
        return None
    words = (tuple(shlex.split(line, comments=True)) for line in lines)
    return [Typed(each) for each in words if each]


def _session(lines: list[str]) -> list[Typed]:
    typed: list[Typed] = []
    for line in lines:
        if line.startswith("$ "):
            typed.append(Typed(tuple(shlex.split(line[2:], comments=True))))
        else:
            last = typed.pop()
            typed.append(Typed(last.words, f"{last.shown or ''}{line}\n"))
    return typed


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
