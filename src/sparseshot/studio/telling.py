"""Warnings for the person who looks at the page."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sparseshot.errors import SparseshotWarning

_said: ContextVar[list[str] | None] = ContextVar("said", default=None)
_mutex = threading.Lock()


@contextmanager
def told() -> Iterator[list[str]]:
    """Collect the warnings of this thread; ``warnings.catch_warnings`` would take those of all threads."""
    with _mutex:
        if warnings.showwarning is not _show:
            _elsewhere[0] = warnings.showwarning
            warnings.showwarning = _show
            warnings.simplefilter("always", SparseshotWarning)
    said: list[str] = []
    token = _said.set(said)
    try:
        yield said
    finally:
        _said.reset(token)


_elsewhere: list[Callable[..., None]] = [warnings.showwarning]


def _show(message: Warning | str, *where: Any, **options: Any) -> None:
    said = _said.get()
    if said is None:
        _elsewhere[0](message, *where, **options)
    else:
        said.append(str(message))
