"""Writing so that a reader never meets half a file."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from sparseshot.errors import OutputError


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Return temporary path beside ``path``; rename it to ``path`` if the block ends well, remove it if not.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> sorted(p.name for p in folder.iterdir()), (folder / "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise OutputError(path, f"the folder {path.parent} does not exist; create it first")
    # The suffix stays last, because writers choose their format by it.
    handle, name = tempfile.mkstemp(
        prefix=f".{path.stem[:100]}.", suffix=f".part{''.join(path.suffixes[-2:])}", dir=path.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes it private; a result is as readable as any other file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path | str, value: object) -> None:
    """Write a value as JSON, whole or not at all; what is not a number is null.

    >>> path = Path(tempfile.mkdtemp(), "a.json")
    >>> write_json(path, {"precision": float("nan")})
    >>> print(path.read_text())
    {
      "precision": null
    }
    """
    with replacing(path) as temporary:
        temporary.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in an existing folder, where the system has file locks.

    The lock ends with the process, however it ends.
    """
    try:
        import fcntl  # noqa: PLC0415  not on Windows
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                folder, "another sparseshot is at work here; wait for it, or choose another --out"
            ) from error
        yield
