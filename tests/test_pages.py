"""Markdown becomes one page that shows text from files literally and loads nothing."""

import base64
import re

import pytest

from sparseshot.pages import Parts, Picture, code, escape, table, to_html, to_markdown


def page(markdown: str, **pictures: bytes) -> str:
    return to_html([markdown, *(Picture(name.replace("_", "."), "c", c) for name, c in pictures.items())])


def test_headings_become_links_at_the_top() -> None:
    html = page("# T \\< U\n\nintro\n\n## A & B\n\ntext\n\n## A & B\n")
    assert "<title>T &lt; U</title>" in html
    assert html.index("<h1>T &lt; U</h1>") < html.index("<nav>") < html.index("<h2 ")
    anchors = re.findall(r'<a href="#([^"]*)">A &amp; B</a>', html)
    assert len(set(anchors)) == 2
    assert all(f'<h2 id="{anchor}">' in html for anchor in anchors)


def test_pictures_are_inside_the_page_and_others_are_not_loaded() -> None:
    html = page("![a](a.svg) ![b](http://example.org/b.png) ![c](javascript:x)", a_svg=b"<svg/>")
    source, again = re.findall(r'src="([^"]*)"', html)
    assert base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")) == b"<svg/>"
    assert again == source
    assert "data:image/svg+xml" in to_html([Picture("Tumör.svg", "a", lambda: b"<svg/>")])


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "![x](http://e.org)", "[x](http://e.org)", "**b** _c_ `d`", "a | b", "# h"],
)
@pytest.mark.parametrize("show", [escape, code])
def test_text_from_files_is_shown_literally(text: str, show: object) -> None:
    assert callable(show)
    for markdown in (f"x {show(text)} y", table([show(text), "y"], [[show(text), "1"]])):
        body = page(markdown).partition("<body>")[2]
        assert not re.search(r"<(script|img|a |strong|em|h1)", body)
        plain = re.sub(r"<[^>]*>", "", body).replace("&lt;", "<").replace("&gt;", ">")
        assert text in plain


def test_markdown_links_its_pictures_or_leaves_them_out() -> None:
    parts: Parts = ["# T", Picture("a.svg", "A caption", lambda: b"<svg/>")]
    assert to_markdown(parts, pictures="pics") == "# T\n\n![A caption](pics/a.svg)\n\n*A caption*\n"
    assert to_markdown(parts, pictures=None) == "# T\n"


def test_pictures_stand_side_by_side_under_their_captions() -> None:
    parts: Parts = [(Picture("a.svg", "A [x](y)", b"<svg/>"), None)]
    assert to_markdown(parts, pictures="") == ("| A [x](y) |  |\n|---|---|\n| ![A [x](y)](a.svg) |  |\n")
    assert 'alt="A x"' in to_html(parts)
    assert to_markdown(parts, pictures=None) == "\n"
