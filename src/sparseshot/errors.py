"""What can go wrong, each saying what was wrong, where, what came, and the cure.

::

    SparseshotError
    ├── InputError (also ValueError)   an argument does not fit: a shape, a type, a range, a name
    ├── FormatError                    a file cannot be understood; names the file and the place in it
    ├── SlideError                     a slide or image cannot be opened or read, or carries no mpp
    ├── DataNotFoundError              a data set, file or folder is not where it was said to be
    ├── CheckpointError                a checkpoint is not ours, from another version, or broken
    └── OutputError                    something is in the way of writing: another model's output, a full disk

    SparseshotWarning (a UserWarning)
    ├── RepairWarning                  input was mended on reading; counts what was mended
    └── TrainingWarning                training goes astray, e.g. nearly everything is excluded
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class SparseshotError(Exception):
    """Root of everything sparseshot raises on purpose."""


class InputError(SparseshotError, ValueError):
    """An argument does not fit."""


class _FileError(SparseshotError):
    """An error about one file, which its message names first."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = Path(path)
        self.problem = problem

    def __reduce__(self) -> tuple[type["_FileError"], tuple[Path, str]]:
        return type(self), (self.path, self.problem)


class FormatError(_FileError):
    """A file cannot be understood."""


class SlideError(_FileError):
    """A slide or image cannot be opened or read, or carries no mpp."""


class DataNotFoundError(_FileError):
    """A data set, file or folder is not where it was said to be."""


class CheckpointError(_FileError):
    """A checkpoint is not ours, from another version, or broken."""


class OutputError(_FileError):
    """Something is in the way of writing."""


class SparseshotWarning(UserWarning):
    """Root of everything sparseshot warns of."""


class RepairWarning(SparseshotWarning):
    """Input was mended on reading; the message counts what was mended."""


class TrainingWarning(SparseshotWarning):
    """Training goes somewhere it should not."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that is none of the known ones, with the closest of them as a hint.

    >>> unknown_name("loss", "foacl", ["ece", "focal"])
    "there is no loss 'foacl'; did you mean 'focal'? Known are ece, focal"
    """
    known = list(known)
    near = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no {kind} {name!r}{hint} Known are {', '.join(known)}"
