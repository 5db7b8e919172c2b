"""A folder that a recipe claims, the names of its files, and the events of the work in it.

::

    recipe.json   what is done here; it never changes
    state.json    how far it is: files with their hashes, seconds, the error, and what the kind of work adds
    output.txt    what a process printed while it worked here
    .lock         held by the process that works here

The folder of a training run has these too::

    marks/         the marks as they were when the run began
    last.pt        checkpoint that a killed run resumes from
    best.pt        best weights so far
    model.pt       the finished model
    log.csv        values of the steps; tensorboard/ has the same for TensorBoard
    rounds/        earlier rounds of weak supervision, each a run
    config.json    and source.json: the recipe before version 0.3
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from sparseshot.errors import FormatError, OutputError
from sparseshot.files import NO_ROOM, is_locked, locked, read_as, read_json, write_json

RECIPE, STATE, OUTPUT = "recipe.json", "state.json", "output.txt"
CONFIG, SOURCE, MARKS = "config.json", "source.json", "marks"
LAST, BEST, MODEL = "last.pt", "best.pt", "model.pt"
LOG, BOARD, ROUNDS = "log.csv", "tensorboard", "rounds"


@dataclass(frozen=True)
class File:
    """A file of a folder.

    Attributes:
        name: relative to the folder.
        sha256: of its bytes.
    """

    name: str
    sha256: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"it names {self.name!r}, which lies elsewhere")

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Return the record of an existing file."""
        with (folder / name).open("rb") as file:
            return cls(name, hashlib.file_digest(file, "sha256").hexdigest())

    def is_in(self, folder: Path) -> bool:
        """Return whether the file is present and unchanged."""
        try:
            return File.of(folder, self.name) == self
        except OSError:
            return False


@dataclass(frozen=True)
class State:
    """How far the work in a folder is.

    Attributes:
        finished: everything is written.
        files: of the result, with their hashes.
        seconds: spent on it, over all starts.
        error: why the last start failed; None if it did not.
        own: what the kind of work adds.
    """

    finished: bool = False
    files: tuple[File, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class WorkFolder:
    """A folder with work in it.

    Attributes:
        path: of the folder.
        state: how far the work is, as it was last read or saved.
    """

    path: Path
    state: State = field(default_factory=State)
    _clock: float = field(default_factory=time.monotonic, init=False, repr=False)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return a folder with its state, for reading."""
        there = (path / STATE).is_file()
        return cls(path, read_as(path / STATE, State) if there else State())

    @classmethod
    @contextmanager
    def claimed(
        cls,
        path: Path,
        recipe: object,
        *,
        may_replace: Callable[[Mapping[str, Any]], bool] = lambda _: False,
        advice: str = "choose another --out",
        wait_s: float = 1.0,
    ) -> Iterator[Self]:
        """Lock a folder for a recipe until the block ends: a new or empty one, or one that it has claimed.

        A full disk becomes an OutputError that says so.

        Args:
            path: of the folder; made if missing.
            recipe: a dataclass.
            may_replace: returns whether another recipe that is there may be replaced; its files stay.
            advice: what to do about other work that is there.
            wait_s: how long to wait for another process that works there.

        Raises:
            OutputError: the folder holds other work, other files, or a process is at work in it.
        """
        wanted = as_json(recipe)
        try:
            with locked(path, wait_s=wait_s):
                there = read_recipe(path)
                if there is None and any(not each.name.startswith(".") for each in path.iterdir()):
                    if not may_replace({}):
                        raise OutputError(path, f"is not empty, and holds no work of this kind; {advice}")
                elif there is not None and there != wanted and not may_replace(there):
                    raise OutputError(path, f"holds work with {difference(there, wanted)}; {advice}")
                if there != wanted:
                    (path / STATE).unlink(missing_ok=True)
                    write_json(path / RECIPE, wanted)
                yield cls.open(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            problem = f"no room left ({error.strerror}); make room and run the same command again"
            raise OutputError(path, problem) from error

    def save(self, **changes: Any) -> None:
        """Change the state and write it, with the time that passed since."""
        now = time.monotonic()
        changes = {"seconds": self.state.seconds + now - self._clock} | changes
        self.state, self._clock = replace(self.state, **changes), now
        write_json(self.path / STATE, self.state)

    def finish(self, *names: str, **changes: Any) -> None:
        """Record files of the result, and that everything is written."""
        files = tuple(File.of(self.path, name) for name in names)
        self.save(files=files, finished=True, error=None, **changes)

    @property
    def is_finished(self) -> bool:
        """Whether everything is written, and unchanged since."""
        return self.state.finished and all(file.is_in(self.path) for file in self.state.files)

    @property
    def is_active(self) -> bool:
        """Whether a process works here."""
        return is_locked(self.path)


def as_json(recipe: object) -> dict[str, Any]:
    """Return a dataclass as it is read back from JSON, without fields that are None."""
    assert is_dataclass(recipe)
    assert not isinstance(recipe, type)
    content: dict[str, Any] = json.loads(json.dumps(asdict(recipe), default=str))
    return {name: value for name, value in content.items() if value is not None}


def read_recipe(path: Path) -> dict[str, Any] | None:
    """Return the recipe of a folder; None if there is none."""
    file = path / RECIPE
    if not file.is_file():
        return None
    content = read_json(file)
    if not isinstance(content, dict):
        raise FormatError(file, "is no recipe; delete it and run the same command again")
    return content


def difference(there: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> str:
    """Return how a recipe differs from the one wanted.

    >>> difference({"model": {"mpp": 0.5}, "seed": 1}, {"model": {"mpp": 0.25}, "seed": 1})
    'model mpp 0.5 instead of 0.25'
    """
    parts = []
    for name in dict.fromkeys((*wanted, *there)):
        old, new = there.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old != new:
            parts.append(difference(old, new, f"{prefix}{name} "))
        elif old != new:
            parts.append(f"{prefix}{name} {old!r} instead of {new!r}")
    return ", ".join(parts)


@dataclass(frozen=True)
class Event:
    """Progress of a piece of work.

    Attributes:
        stage: what is being done, such as ``training``.
        done: how much of the stage is done.
        total: all of the stage; None if it is unknown.
        values: numbers of the moment, such as the loss.
        message: a short note for people.
    """

    stage: str
    done: int = 0
    total: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""

    @property
    def share(self) -> float:
        """Completed part of the stage, 0 to 1.

        >>> Event("training", 50, 200).share
        0.25
        """
        return min(1.0, self.done / self.total) if self.total else 0.0


Report = Callable[[Event], None]
"""Receives events; it may raise to stop the work."""


def ignore(event: Event) -> None:
    """Receive an event and do nothing."""
