"""Readers run on hostile files in child processes with limits on memory and time.

``python -m tests.limited MODULE:FUNCTION FILE…`` prints a JSON object with the outcome of each file: ``ok``,
``error: …`` for an error of ours, ``unforeseen: …`` for any other exception, ``signal N``, ``exit N``,
``timeout``. Each of these files is read in a process of its own.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from sparseshot.errors import SparseshotError

Item = TypeVar("Item")
MEMORY_BYTES = 4 << 30
SECONDS = 20


def outcomes(function: str, paths: Sequence[Path]) -> dict[str, str]:
    """Return the outcome of ``"module:function"`` on each file, by name, from a fresh process."""
    command = [sys.executable, "-m", "tests.limited", function, *map(str, paths)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr
    return {Path(path).name: outcome for path, outcome in json.loads(ran.stdout).items()}


def outcome(action: Callable[[Item], object], item: Item) -> str:
    """Run an action in a forked child and return what became of it."""
    return next(each_outcome(action, [item]))


def each_outcome(action: Callable[[Item], object], items: Sequence[Item]) -> Iterator[str]:
    """Yield what became of an action on each item; one forked child serves them, until it dies."""
    done = 0
    while done < len(items):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with contextlib.suppress(BaseException):
                _serve(action, items[done:], writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                yield json.loads(line)
                done += 1
        _, status = os.waitpid(child, 0)
        if done == len(items):
            return
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number:
            yield "timeout" if number == signal.SIGALRM else f"signal {number}"
        else:
            yield f"exit {os.WEXITSTATUS(status)}"
        done += 1


def _serve(action: Callable[[Item], object], items: Sequence[Item], answers: int) -> None:
    """Write the outcome of each item as a line of JSON."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123  what libraries in C print
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    warnings.simplefilter("ignore")
    for item in items:
        signal.alarm(SECONDS)
        answer = _attempt(action, item)
        signal.alarm(0)
        os.write(answers, json.dumps(answer[:4000]).encode() + b"\n")


def _attempt(action: Callable[[Item], object], item: Item) -> str:
    try:
        action(item)
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
