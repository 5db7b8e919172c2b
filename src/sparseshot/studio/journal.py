"""An append-only journal of JSON lines, shared by processes and safe against their death."""

import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import ValidationError

from sparseshot.errors import FormatError, OutputError, RepairWarning
from sparseshot.files import NO_ROOM, replacing

Event = dict[str, Any]

_FORMAT = "sparseshot marks"
_VERSION = 1
_MOST_NAMED = 5


class Journal:
    """Events, one JSON line each, in the order in which they happened.

    An event counts once :meth:`append` has returned: it is then on disk. What a killed process left of a
    line was never confirmed and is cut off by the next one that appends. Every process folds all events,
    those of other processes included, in the same order. A line that is no event is set aside when the
    journal is opened: it moves to a file beside it, and a warning names it. Not thread-safe: the owner locks.

    Attributes:
        path: the file; created with the first event.
        generation: changes when the file was written anew.
        damaged: reasons why lines were set aside, by their numbers.
    """

    def __init__(self, path: Path, *, fold: Callable[[Event], None], clear: Callable[[], None]) -> None:
        """Read a journal.

        Args:
            path: the file.
            fold: called with every event, in order; raises ValueError for what is none, and changes nothing.
            clear: called before the journal is read anew, because another process set lines aside.
        """
        self.path, self.generation = path, ""
        self._fold, self._clear = fold, clear
        self._offset, self._inode = 0, -1
        self.damaged: dict[int, str] = {}
        self.follow()
        if self.damaged:
            self._set_aside()

    def append(self, events: Iterable[Event]) -> None:
        """Write events to disk and fold them, after those that other processes wrote in the meantime.

        Raises:
            OutputError: the disk is full or the file cannot be written. None of the events was kept.
        """
        lines = b"".join(orjson.dumps(event) + b"\n" for event in events)
        with self._locked() as file:
            self._catch_up(file)
            _write(file, self._offset, lines)
            self._catch_up(file)

    def follow(self) -> None:
        """Fold what other processes appended since."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != self._offset or self._is_another(file):
                self._catch_up(file)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Open the journal, created if missing, with an exclusive lock; an OSError becomes an OutputError."""
        try:
            while True:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
                with os.fdopen(handle, "rb+", buffering=0) as raw:
                    _lock(handle)
                    if not self.path.exists() or self.path.stat().st_ino != os.fstat(handle).st_ino:
                        continue  # it was written anew while we waited for the lock
                    file: BinaryIO = raw
                    if os.fstat(handle).st_size == 0:
                        _write(file, 0, _header() + b"\n")
                        _sync_folder(self.path.parent)
                    yield file
                    return
        except OSError as error:
            if error.errno in NO_ROOM:
                raise OutputError(
                    self.path, "the disk is full; make room, nothing was lost so far"
                ) from error
            raise OutputError(self.path, f"cannot be written ({error.strerror or error})") from error

    def _catch_up(self, file: BinaryIO) -> None:
        """Fold the whole lines after those that are known."""
        if self._is_another(file):
            self._clear()
            self._offset, self._lines = 0, 0
            self._inode = os.fstat(file.fileno()).st_ino
        file.seek(self._offset)
        lines = file.read()
        for line in lines[: lines.rfind(b"\n") + 1].splitlines(keepends=True):
            self._offset, self._lines = self._offset + len(line), self._lines + 1
            try:
                event = orjson.loads(line)
                if self._lines == 1 and isinstance(event, dict) and "journal" in event:
                    self.generation = self._generation(event)
                else:
                    self._fold(event)
            except ValueError as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                self.damaged[self._lines] = " ".join(reason.split())[:200]

    def _generation(self, header: Event) -> str:
        if header["journal"] != _FORMAT or header.get("version") != _VERSION:
            raise FormatError(
                self.path,
                f"line 1 says version {header.get('version')} of {header['journal']!r}; only version "
                f"{_VERSION} of {_FORMAT!r} is read here: open it with the sparseshot that wrote it",
            )
        return str(header.get("generation", ""))

    def _set_aside(self) -> None:
        """Move lines that are no events to a file beside the journal, and name them in a warning."""
        aside, outcome = self.path.with_suffix(".damaged.jsonl"), "they are left out"
        with suppress(OutputError), self._locked() as file:
            self._catch_up(file)
            file.seek(0)
            lines = file.read()[: self._offset].splitlines(keepends=True)
            with aside.open("ab") as others:
                others.writelines(lines[number - 1] for number in self.damaged)
                os.fsync(others.fileno())
            kept = [line for number, line in enumerate(lines, 1) if number not in self.damaged]
            with replacing(self.path) as temporary:
                has_header = bool(self.generation) and 1 not in self.damaged
                temporary.write_bytes(b"".join([_header() + b"\n", *kept[has_header:]]))
            outcome = f"they were moved to {aside.name}"
        named = "; ".join(
            f"line {number}: {reason}" for number, reason in [*self.damaged.items()][:_MOST_NAMED]
        )
        more = len(self.damaged) - _MOST_NAMED
        warnings.warn(
            f"{self.path}: some lines are no changes of marks, and {outcome}; all others are kept ({named}"
            + (f"; and {more:,} more)" if more > 0 else ")"),
            RepairWarning,
            stacklevel=3,
        )
        self.follow()

    def _is_another(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        return status.st_ino != self._inode or status.st_size < self._offset


def _header() -> bytes:
    return orjson.dumps({"journal": _FORMAT, "version": _VERSION, "generation": secrets.token_hex(8)})


def _write(file: BinaryIO, end: int, lines: bytes) -> None:
    """Write after the last whole line, and wait for the disk; if that fails, nothing stays."""
    try:
        file.truncate(end)
        file.seek(end)
        view = memoryview(lines)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(end)
        raise


def _lock(handle: int) -> None:
    with suppress(ImportError):  # not on Windows
        import fcntl  # noqa: PLC0415

        fcntl.flock(handle, fcntl.LOCK_EX)


def _sync_folder(folder: Path) -> None:
    """Make sure that the name of a new file is on disk too."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
