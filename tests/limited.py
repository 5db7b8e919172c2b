"""Readers run on hostile files, each in a child process of its own with limits on memory and time.

``python -m tests.limited MODULE:FUNCTION FILE…`` prints a JSON object with the outcome of each file: ``ok``,
``error: …`` for an error of ours, ``unforeseen: …`` for any other exception, ``signal N``, ``timeout``.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from sparseshot.errors import SparseshotError

MEMORY_BYTES = 4 << 30
SECONDS = 20


def outcomes(function: str, paths: Sequence[Path]) -> dict[str, str]:
    """Return the outcome of ``"module:function"`` on each file, by name, from a fresh process."""
    command = [sys.executable, "-m", "tests.limited", function, *map(str, paths)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr
    return {Path(path).name: outcome for path, outcome in json.loads(ran.stdout).items()}


def outcome(action: Callable[[Path], object], path: Path) -> str:
    """Run an action on a file in a forked child and return what became of it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, _attempt(action, path).encode(errors="replace")[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "timeout" if number == signal.SIGALRM else f"signal {number}"
    return text


def _attempt(action: Callable[[Path], object], path: Path) -> str:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123  what libraries in C print
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    warnings.simplefilter("ignore")
    try:
        action(path)
    except SparseshotError as error:
        return f"error: {error}"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "sparseshot" in frame.filename] or frames
        return (
            f"unforeseen: {type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}: {error}"
        )
    return "ok"


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    print(json.dumps({path: outcome(function, Path(path)) for path in sys.argv[2:]}))
