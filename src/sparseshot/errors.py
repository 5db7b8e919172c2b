"""Exceptions and warnings. A message says what is wrong, where, which value was found, and what to do.

::

    SparseshotError
    ├── InputError (also ValueError)   invalid argument: shape, type, range or name
    ├── FormatError                    malformed file; names the file and the position in it
    ├── SlideError                     a slide or image cannot be opened or read, or states no resolution
    ├── DataNotFoundError              a data set, file or folder does not exist
    ├── CheckpointError                a checkpoint is foreign, damaged or of another version
    ├── OutputError                    output cannot be written: other results in the folder, a full disk
    └── ClusterError                   a cluster cannot be joined, or its nodes differ

    SparseshotWarning (a UserWarning)
    ├── RepairWarning                  input was repaired on reading; counts the repairs
    └── TrainingWarning                training goes wrong, e.g. nearly everything is excluded
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def utf8(path: Path | str) -> str:
    r"""Return a path as text that can be stored; bytes that are not UTF-8 become ``�``.

    >>> utf8("caf\udce9.svs")
    'caf�.svs'
    """
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


class SparseshotError(Exception):
    """Base class of all sparseshot exceptions."""


class InputError(SparseshotError, ValueError):
    """Invalid argument."""


class _FileError(SparseshotError):
    """An error about one file; the message begins with its path."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{utf8(path)}: {problem}")
        self.path = Path(path)
        self.problem = problem

    def __reduce__(self) -> tuple[type["_FileError"], tuple[Path, str]]:
        return type(self), (self.path, self.problem)


class FormatError(_FileError):
    """Malformed file."""


class SlideError(_FileError):
    """A slide or image cannot be opened or read, or states no resolution."""


class DataNotFoundError(_FileError):
    """A data set, file or folder does not exist."""


class CheckpointError(_FileError):
    """A checkpoint is foreign, damaged or of another version."""


class OutputError(_FileError):
    """Output cannot be written."""


class ClusterError(SparseshotError):
    """A cluster cannot be joined, or its nodes differ."""


class SparseshotWarning(UserWarning):
    """Base class of all sparseshot warnings."""


class RepairWarning(SparseshotWarning):
    """Input was repaired on reading; the message counts the repairs."""


class TrainingWarning(SparseshotWarning):
    """Training goes wrong."""


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "mark"), counted(1200, "mark")
    ('1 mark', '1,200 marks')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that is none of the known ones, with the closest of them as a hint.

    >>> unknown_name("loss", "foacl", ["ece", "focal"])
    "there is no loss 'foacl'; did you mean 'focal'? Known are ece, focal"
    """
    known = list(known)
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no {kind} {name!r}{hint} Known are {', '.join(known)}"


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error, as in compiled code, which turns it into a SystemError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
