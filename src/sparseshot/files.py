"""Reading small files, writing so that a reader never sees half of a file, locking and naming folders."""

import errno
import fcntl
import glob
import os
import re
import secrets
import shutil
import tempfile
import time
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import orjson

from sparseshot.errors import DataNotFoundError, FormatError, OutputError, unknown_name

T = TypeVar("T")

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the errors that a full disk, quota or file raises."""


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path; it becomes ``path`` if the block succeeds, and is removed if not.

    A link is followed and its target replaced. What is not a file, such as a device or a pipe, is written to
    when the block has succeeded. Temporary files left by killed processes are removed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> sorted(p.name for p in folder.iterdir()), (folder / "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(path, "is a folder; give the name of a file")
    # A link below /dev or /proc, such as /dev/stdout, leads to what another process holds open.
    is_file = (path.is_file() or not path.exists()) and path.absolute().parts[1:2] not in {
        ("dev",),
        ("proc",),
    }
    target = path.resolve() if is_file else path
    folder = target.parent if is_file else Path(tempfile.gettempdir())
    if not folder.is_dir():
        raise OutputError(path, f"the folder {folder} does not exist; create it first")
    # The suffix stays last, because writers choose their format by it.
    prefix = f".{os.fsencode(path.stem)[:100].decode(errors='ignore')}."
    suffix = f".part{''.join(path.suffixes[-2:])}"
    _remove_leftovers(folder, f"{glob.escape(prefix)}*{glob.escape(suffix)}")
    # Named before it is made, so that Ctrl-C between the two leaves nothing behind.
    temporary = folder / f"{prefix}{secrets.token_hex(8)}{suffix}"
    try:
        with temporary.open("xb") as held:
            _lock(held.fileno())  # until it is renamed, so that nobody takes it for a leftover
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
                if not is_file:
                    with target.open("wb") as output:
                        shutil.copyfileobj(file, output)
                    return
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path | str, *, marks: Sequence[str]) -> Iterator[Path]:
    """Yield the path of a folder to be made; it becomes ``path`` if the block succeeds, else it is removed.

    A folder that is there already is replaced if it contains one of the files ``marks``, which tell that it
    is of the same kind.
    """
    path = Path(path).absolute()
    if path.is_symlink() or (path.exists() and not any((path / mark).is_file() for mark in marks)):
        raise OutputError(path, "is there already and is something else; choose another name or remove it")
    if not path.parent.is_dir():
        raise OutputError(path, f"the folder {path.parent} does not exist; create it first")
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}.", suffix=".part", dir=path.parent) as name:
        new, old = Path(name, path.name), path.with_name(f"{Path(name).stem}.old")
        yield new
        try:
            if path.exists():
                path.rename(old)
            new.rename(path)
        finally:
            if old.exists() and not path.exists():
                old.rename(path)
    shutil.rmtree(old, ignore_errors=True)


_LEFTOVER_S = 60
"""A younger temporary file may belong to a process that has not locked it yet."""


def _remove_leftovers(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        with suppress(OSError), path.open("rb") as file:
            if time.time() - path.stat().st_mtime > _LEFTOVER_S and _lock(file.fileno()):
                path.unlink()


def _lock(handle: int) -> bool:
    """Lock an open file; False if another process holds the lock, or if there are no locks here."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_json(path: Path | str, value: object) -> None:
    """Write a value or a dataclass as JSON, whole or not at all; NaN becomes null.

    >>> path = Path(tempfile.mkdtemp(), "a.json")
    >>> write_json(path, {"precision": float("nan")})
    >>> print(path.read_text())
    {
      "precision": null
    }
    """
    with replacing(path) as temporary:
        temporary.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not text in UTF-8 ({error}); save it in that encoding") from error
    except OSError as error:
        raise DataNotFoundError(path, f"cannot be read ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    return _parsed(path, orjson.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file."""
    return _parsed(path, tomllib.loads, "TOML")


def _parsed(path: Path, loads: Callable[[str], T], language: str) -> T:
    text = read_text(path)
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"is not {language} ({error})") from error


def read_as(path: Path, kind: type[T], *, advice: str = "delete it and run the same command again") -> T:
    """Return the value in a JSON file as a dataclass or another type; other content is a FormatError.

    Args:
        path: the file.
        kind: type of the value.
        advice: what to do about a file with other content.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  only some commands need it

    try:
        return TypeAdapter(kind).validate_python(read_json(path), extra="forbid")
    except ValidationError as error:
        reason = " ".join(str(error).split())
        raise FormatError(path, f"has other content ({reason}); {advice}") from error
    except FormatError as error:
        raise FormatError(path, f"{error.problem}; {advice}") from error


def toml_as(kind: type[T], values: Mapping[str, Any], path: Path, tables: Mapping[str, type[Any]]) -> T:
    """Return the values of a TOML file as a dataclass or another type; a FormatError names the table.

    Args:
        kind: type of the values.
        values: content of the file.
        path: the file.
        tables: the dataclass of each kind of table, by a key that leads to it; ``""`` is that of all others.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  only some commands need it

    try:
        return TypeAdapter(kind).validate_python(values, extra="forbid")
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] == "missing")  # perhaps because of a typo
        keys = [*first["loc"]]
        while isinstance(keys[-1], int) or keys[-1] == "[key]":
            keys.pop()
        *place, key = keys
        name = ".".join(str(each) for each in place if isinstance(each, str))
        header = f"[[{name}]] {place[-1] + 1}: " if place and isinstance(place[-1], int) else f"[{name}]: "
        problem, value, cure = first["type"], first["input"], first["msg"].lower()
        if problem == "missing":
            text = f"there is no {key} here; add {key} = …"
        elif problem == "unexpected_keyword_argument":
            table = next((tables[str(each)] for each in place if each in tables), tables[""])
            text = unknown_name("key", key, [item.name for item in fields(table)])
        else:
            if problem in {"tuple_type", "sequence_str"}:
                cure = f"write it as [[{key}]]" if isinstance(value, dict) else "write it as a list: […]"
            elif problem in {"dataclass_type", "dict_type"}:
                cure = f"write it as a table: [{key}]"
            text = f"{key} is {value!r}; {cure}"
        raise FormatError(path, (header if place else "") + text) from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents; raise OutputError if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(path, f"cannot be created ({error.strerror})") from error


@contextmanager
def locked(folder: Path, *, wait_s: float = 1.0) -> Iterator[None]:
    """Lock a folder, created if missing, against other processes until the block ends or the process dies.

    Without effect on file systems without locks.

    Args:
        folder: to lock.
        wait_s: how long to wait for another process that has it; it may only look, as :func:`is_locked` does.
    """
    make_folder(folder)
    path = folder / ".lock"
    end = time.monotonic() + wait_s
    while True:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() < end:
                    time.sleep(0.02)
                    continue
                raise OutputError(
                    folder, "another sparseshot is at work here; wait for it, or choose another --out"
                ) from error
            except OSError as error:
                if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}:
                    raise
            if os.fstat(lock.fileno()).st_nlink == 0:
                continue  # its last owner removed it after we had opened it
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def is_locked(folder: Path) -> bool:
    """Return whether another process holds the lock of a folder; False where there are no locks."""
    try:
        with (folder / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # no lock, or none on this file system
        return isinstance(error, BlockingIOError)
    return False


_LONGEST_BYTES = 100
# Names that Windows keeps for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def safe_name(name: str, *, suffix: str = "") -> str:
    """Return a name that is one folder on every system: letters of any script, digits, ``_ .-``.

    >>> safe_name("../../etc/passwd"), safe_name("Schnitt 7 (Köln).svs"), safe_name("病理 1.tif")
    ('etc_passwd', 'Schnitt 7 _Köln_.svs', '病理 1.tif')
    """
    text = re.sub(r"[^\w .-]+", "_", unicodedata.normalize("NFC", name)).strip(" ._")
    text = text.encode()[:_LONGEST_BYTES].decode(errors="ignore").strip(" .")
    text = text if text and not _DEVICES.match(text) else f"slide {text}".strip()
    return text + suffix


def folder_inside(out: Path, name: str, *, suffix: str = "") -> Path:
    """Return the folder of a name inside ``out``; a link that leads outside is an error."""
    folder = out / safe_name(name, suffix=suffix)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise OutputError(folder, f"is a link that leads out of {out}; remove it or choose another --out")
    return folder
