"""Commands in separate processes, and the interface that runs them."""

import os
import signal
import stat
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

MEMORY_PER_JOB = 2 << 30
"""Bytes a run of the quick profile may need; limits how many run at a time."""

POLL_SECONDS = 0.2
STOP_SECONDS = 10.0
_STOPPED = 3


@dataclass(frozen=True)
class CommandJob:
    """A command to run.

    Attributes:
        name: identifies the job.
        command: program and arguments. It has to end when its standard input closes.
        output: file that standard output and standard error are appended to.
        folder: working directory; None for the current one.
    """

    name: str
    command: Sequence[str]
    output: Path
    folder: Path | None = None


class JobStatus(NamedTuple):
    """State of a started job: seconds since its start, and its exit code once it has ended."""

    job: CommandJob
    seconds: float = 0.0
    code: int | None = None


class Executor(Protocol):
    """Runs jobs, several at a time."""

    def run(self, jobs: Iterable[CommandJob]) -> Generator[JobStatus]:
        """Start jobs in order as there is room, and yield their states several times a second.

        The next job is taken from ``jobs`` when it can start. Each job's last state has an exit code.
        Closing the iterator cancels the jobs that are running. To resume, submit the jobs that are missing.
        """
        ...


def threads_environment(threads: int) -> dict[str, str]:
    """Return the variables that limit a process to so many threads, unless ``OMP_NUM_THREADS`` is set."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, os.environ.get("OMP_NUM_THREADS") or str(max(1, threads)))


def exit_message(code: int, output: Path) -> str:
    """Return how a process ended that reported no error."""
    if code == -9:  # SIGKILL, which a system without free memory also sends
        return "killed by the system, probably out of memory; use fewer --jobs or a smaller batch"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}; see {output.name} in its folder"
    lines = output.read_text(errors="replace").strip().splitlines() if output.is_file() else []
    return f"ended with code {code}: {lines[-1] if lines else 'no output'}"


def end_with_parent() -> None:
    """End this process when its standard input closes; leave Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # started by hand, the input may be anything
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(_STOPPED)  # training is in C code most of the time, which no gentler way interrupts
