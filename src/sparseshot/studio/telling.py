"""Warnings for the person who looks at the page."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sparseshot.errors import SparseshotWarning

_said: ContextVar[list[str] | None] = ContextVar("said", default=None)


@contextmanager
def told() -> Iterator[list[str]]:
    """Collect the warnings of this thread; ``warnings.catch_warnings`` would take those of all threads."""
    if not isinstance(warnings.showwarning, _Listening):
        warnings.showwarning = _Listening(warnings.showwarning)
        warnings.simplefilter("always", SparseshotWarning)
    said: list[str] = []
    token = _said.set(said)
    try:
        yield said
    finally:
        _said.reset(token)


class _Listening:
    """Shows a warning to who listens in its thread, or else as before."""

    def __init__(self, elsewhere: Any) -> None:
        self._elsewhere = elsewhere

    def __call__(self, message: Warning | str, *where: Any, **options: Any) -> None:
        said = _said.get()
        if said is None:
            self._elsewhere(message, *where, **options)
        else:
            said.append(str(message))
