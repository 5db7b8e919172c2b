"""Jobs in processes of their own, several at a time."""

import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

MEMORY_PER_JOB = 2 << 30
"""Bytes a run of the quick profile may need; limits how many run at a time."""

_POLL_SECONDS = 0.2
_STOP_SECONDS = 10.0
_STOPPED = 3


@dataclass(frozen=True)
class Job:
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

    job: Job
    seconds: float = 0.0
    code: int | None = None


@dataclass(frozen=True)
class LocalProcesses:
    """Runs jobs on this machine, several at a time; they share its cores, and each has one GPU if any.

    Attributes:
        slots: how many jobs run at a time.
    """

    slots: int

    def run(self, jobs: Iterable[Job]) -> Generator[JobStatus]:
        """Start jobs in order as slots become free, and yield their states several times a second.

        The next job is taken from ``jobs`` when a slot is free. Each job's last state has an exit code.
        Closing the iterator cancels the jobs that are running. To resume, submit the jobs that are missing.
        """
        waiting = iter(jobs)
        running: dict[int, tuple[Job, subprocess.Popen[bytes], float]] = {}
        try:
            while True:
                for slot in range(self.slots):
                    if slot not in running and (job := next(waiting, None)) is not None:
                        running[slot] = job, self._start(job, slot), time.monotonic()
                        yield JobStatus(job)
                if not running:
                    return
                time.sleep(_POLL_SECONDS)
                for slot, (job, process, start) in list(running.items()):
                    if (code := process.poll()) is not None:
                        _stop([running.pop(slot)[1]])
                    yield JobStatus(job, time.monotonic() - start, code)
        finally:
            _stop([process for _, process, _ in running.values()])

    def _start(self, job: Job, slot: int) -> subprocess.Popen[bytes]:
        with job.output.open("ab") as output:
            return subprocess.Popen(
                job.command,
                cwd=job.folder,
                stdin=subprocess.PIPE,  # never written to; it closes when this process ends
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | worker_environment(slot, self.slots),
            )


def default_slots() -> int:
    """Return how many jobs this machine should run at a time: one for each GPU, else for each core."""
    if gpus := torch.cuda.device_count():
        return gpus
    slots = _cores()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        slots = min(slots, memory // MEMORY_PER_JOB)
    return max(1, slots)


def worker_environment(slot: int, slots: int) -> dict[str, str]:
    """Return a worker's share of the cores, unless ``OMP_NUM_THREADS`` is set, and its GPU."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, _cores() // slots))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = dict.fromkeys(names, threads)
    if gpus := torch.cuda.device_count():
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = allowed if len(allowed) == gpus else [str(number) for number in range(gpus)]
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % gpus]
    return environment


def exit_message(code: int, output: Path) -> str:
    """Return how a process ended that left no error of its own."""
    if code == -9:  # SIGKILL, which a system without free memory also sends
        return "killed by the system, probably out of memory; use fewer --jobs or a smaller batch"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}; see {output.name} in its folder"
    lines = output.read_text(errors="replace").strip().splitlines() if output.is_file() else []
    return f"ended with code {code}: {lines[-1] if lines else 'no output'}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close the workers' standard input, which ends them; kill those that do not end."""
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_parent() -> None:
    """End this process when its standard input closes; leave Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # started by hand, the input may be anything
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(_STOPPED)  # training is in C code most of the time, which no gentler way interrupts
