"""Make Markdown of what docstrings borrow from reStructuredText: roles, formulas, sessions, literals."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|data|mod|attr):`~?([^`]+)`")
_FORMULA = re.compile(r"^( *)\.\. math::(.*(?:\n+\1 +.*)*)", flags=re.MULTILINE)
_SESSION = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", flags=re.MULTILINE)
_LITERAL = re.compile(r"::\n\n(?= {4})")


class DocstringMarkup(griffe.Extension):
    """Rewrites each docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown.

    >>> as_markdown("See :func:`sparseshot.losses.make_loss`.")
    'See `make_loss`.'
    """
    text = _ROLE.sub(lambda role: f"`{role[1].removeprefix('sparseshot.').rsplit('.', 1)[-1]}`", text)
    text = _FORMULA.sub(_formula, text)
    text = _SESSION.sub(lambda session: f"{session[1]}```pycon\n{session[0]}\n{session[1]}```", text)
    return _LITERAL.sub(":\n\n", text)


def _formula(found: re.Match[str]) -> str:
    indent, body = found[1], re.sub(r"\s*\n\s*", " ", found[2]).strip()
    return f"{indent}```latex\n{indent}{body}\n{indent}```"
