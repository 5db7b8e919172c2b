"""Compilation of numeric loops by numba."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function for this CPU when it is first called; it runs without the GIL.

    The machine code is kept on disk. Where no folder can be written, as in a read-only container, each
    process compiles anew. Division follows NumPy: a division by zero that raises would keep a loop from
    being vectorised.
    """
    dispatcher = njit(nogil=True, error_model="numpy")(function)
    with suppress(RuntimeError):  # no folder for it
        dispatcher._cache = _Cache(function)  # type: ignore[attr-defined, no-untyped-call]  # as numba's own option does
    return cast(Function, dispatcher)


class _Cache(FunctionCache):
    """Machine code of a function on disk; discards what an earlier version of this package has left.

    numba loads the argument types before it compares the age of the source, so a class that no longer exists
    would make every call fail.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            self.flush()  # type: ignore[no-untyped-call]
            return None


class _Notice(event.Listener):
    """Say once on a terminal why the first call is slow."""

    said = False

    def on_start(self, event: Any) -> None:
        if not self.said and event.data["dispatcher"].py_func.__module__.startswith("sparseshot."):
            self.said = True
            if sys.stderr.isatty():
                print("sparseshot: compiling for this CPU, once; this takes some seconds", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        pass


_NOTICE = _Notice()
event.register("numba:compile", _NOTICE)  # type: ignore[no-untyped-call]
