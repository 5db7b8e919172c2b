"""Runners: one way to run work, in this process, in several, or on a Ray cluster.

A :class:`Job` names a function and its arguments, which are JSON values, so that any process can call it::

    def perform_job(folder: str, *, report: Report) -> object: ...

    jobs = [Job("a", "package.module:perform_job", {"folder": "runs/a"})]
    for update in Processes(4).run(jobs):
        ...  # update.event while it works; update.is_end, update.error and update.value at its end

``Here`` calls it in this process, ``Processes`` in new ones, and ``RayRunner`` in
:mod:`sparseshot.work.ray_runner` on the nodes of a cluster. What a job prints goes to its file ``output``.
"""

import importlib
import json
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sparseshot.errors import SparseshotError
from sparseshot.work.folder import Event, Report

MEMORY_PER_JOB = 2 << 30
"""Bytes a run of the quick profile may need; limits how many run at a time."""

STOP_SECONDS = 10.0
_TICK_SECONDS = 1.0
_STOPPED = 3
_NO_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "bad allocation")
_CHILD = "from sparseshot.work.runner import main; main()"


@dataclass(frozen=True)
class Job:
    """A call of a function.

    Attributes:
        name: identifies the job.
        function: ``package.module:function``; it is called with the arguments and ``report``.
        arguments: JSON values; paths are absolute if the job may run on another machine.
        output: file to which the standard output and error of a process are appended; None: not redirected.
        reuses_process: whether it may run in a process that ran other jobs before.
    """

    name: str
    function: str
    arguments: Mapping[str, Any]
    output: Path | None = None
    reuses_process: bool = False

    def call(self, report: Report) -> Any:
        """Call the function in this process."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)(**self.arguments, report=report)


@dataclass(frozen=True)
class Update:
    """News of a job: it has started, reported an event, still works, or ended.

    Attributes:
        job: the job.
        seconds: since its start.
        event: what it reported; None at other times.
        is_end: whether it has ended; each job ends once.
        value: what the function returned, a JSON value.
        error: why it failed; None if it did not.
    """

    job: Job
    seconds: float = 0.0
    event: Event | None = None
    is_end: bool = False
    value: Any = None
    error: str | None = None


class Runner(Protocol):
    """Runs jobs."""

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """Start jobs in order as there is room, and yield their news, at least once a second.

        The next job is taken from ``jobs`` when it can start. Closing the iterator stops the jobs that are
        running. To resume, submit the jobs that are missing.
        """
        ...


_News = tuple[str, Event | Mapping[str, Any]]
"""Name of a job, and an event, or ``value`` and ``error`` at its end."""


@dataclass
class _Board:
    """The jobs that are running, and their news from other threads."""

    news: "queue.Queue[_News]" = field(default_factory=queue.Queue)
    running: dict[str, tuple[Job, float]] = field(default_factory=dict)

    def begin(self, job: Job) -> Update:
        self.running[job.name] = job, time.monotonic()
        return Update(job)

    def updates(self) -> Generator[Update]:
        """Wait for news and yield them; after a second without any, how long each job has run."""
        try:
            pending = [self.news.get(timeout=_TICK_SECONDS)]
        except queue.Empty:
            for job, start in list(self.running.values()):
                yield Update(job, time.monotonic() - start)
            return
        with suppress(queue.Empty):
            while True:
                pending.append(self.news.get_nowait())
        for name, what in pending:
            yield self.update(name, what)

    def update(self, name: str, what: Event | Mapping[str, Any]) -> Update:
        job, start = self.running[name]
        seconds = time.monotonic() - start
        if isinstance(what, Event):
            return Update(job, seconds, what)
        del self.running[name]
        return Update(job, seconds, is_end=True, value=what.get("value"), error=what.get("error"))


class _StoppedError(BaseException):
    """Raised in a job whose runner was closed."""


class Here:
    """Runs jobs one after the other in this process, beside the thread that receives their news."""

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """See :meth:`Runner.run`. A job that is stopped ends at its next event."""
        board, stopped = _Board(), threading.Event()
        for job in jobs:
            yield board.begin(job)

            def report(event: Event, name: str = job.name) -> None:
                if stopped.is_set():
                    raise _StoppedError
                board.news.put((name, event))

            thread = threading.Thread(target=_call_here, args=(job, report, board), name=job.name)
            thread.start()
            try:
                while board.running:
                    yield from board.updates()
            finally:
                stopped.set()
                thread.join()
            stopped.clear()


def _call_here(job: Job, report: Report, board: _Board) -> None:
    with suppress(_StoppedError):
        board.news.put((job.name, outcome_of(job, report)))


def outcome_of(job: Job, report: Report) -> dict[str, Any]:
    """Call the function of a job; return its ``value`` or its ``error``, which concerns this job alone."""
    try:
        return {"value": job.call(report)}
    except Exception as error:
        if not isinstance(error, SparseshotError | OSError | MemoryError):
            traceback.print_exc()
        return {"error": explain(error)}


def is_out_of_memory(error: Exception) -> bool:
    """Return whether there was too little memory; PyTorch and OpenVINO raise a RuntimeError then."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(each in str(error) for each in _NO_MEMORY)
    )


def explain(error: Exception) -> str:
    """Return an error in words: what a person can do about it, or that it is ours.

    >>> explain(MemoryError()), explain(KeyError("x"))
    ('not enough memory', "KeyError: 'x' (not foreseen; please report it)")
    """
    if isinstance(error, SparseshotError | OSError):
        return str(error)
    if is_out_of_memory(error):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    return f"{type(error).__name__}: {error} (not foreseen; please report it)"


@dataclass(frozen=True)
class Processes:
    """Runs jobs in new processes of this machine; they share its cores, and each has one GPU if any.

    Attributes:
        slots: how many jobs run at a time.
    """

    slots: int

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """See :meth:`Runner.run`."""
        board, waiting = _Board(), iter(jobs)
        slots: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        try:
            while True:
                for slot in range(self.slots):
                    if slot not in slots and (job := next(waiting, None)) is not None:
                        process = start_process(job, worker_environment(slot, self.slots))
                        slots[slot] = job.name, process
                        begun = board.begin(job)
                        threading.Thread(target=_listen, args=(job, process, board), daemon=True).start()
                        yield begun
                if not slots:
                    return
                for update in board.updates():
                    if update.is_end:
                        slot = next(key for key, (name, _) in slots.items() if name == update.job.name)
                        stop_processes([slots.pop(slot)[1]])
                    yield update
        finally:
            stop_processes([process for _, process in slots.values()])


def start_process(job: Job, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process that calls the function of a job; its events are lines of its standard output."""
    output = None if job.output is None else job.output.open("ab")
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,  # it ends with this process, and the child ends with it
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        )
    finally:
        if output is not None:
            output.close()
    assert process.stdin is not None
    asked = {"name": job.name, "function": job.function, "arguments": dict(job.arguments)}
    with suppress(BrokenPipeError):  # it has ended already; its exit code tells why
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
    return process


def _listen(job: Job, process: "subprocess.Popen[bytes]", board: _Board) -> None:
    """Pass on what a process reports, and how it ended."""
    ended = None
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            content = json.loads(line)
            if "stage" in content:
                board.news.put((job.name, Event(**content)))
            else:
                ended = content
    code = process.wait()
    board.news.put((job.name, ended or {"error": exit_message(code, job.output)}))


def main() -> None:
    """Do the job that standard input names, in a process of its own."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the job prints is no event
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 1)):  # unbuffered, because a thread reads on
        line += more
    end_with_parent()
    job = Job(**json.loads(line))

    def tell(content: object) -> None:
        print(json.dumps(content, default=str), file=events, flush=True)

    outcome = outcome_of(job, lambda event: tell(asdict(event)))
    tell(outcome)
    sys.exit(1 if "error" in outcome else 0)


def stop_processes(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Close the standard input of processes, which ends them; kill those that do not end."""
    for process in processes:
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def exit_message(code: int, output: Path | None) -> str:
    """Return how a process ended that reported no error."""
    if code == -9:  # SIGKILL, which a system without free memory also sends
        return "killed by the system, probably out of memory; use fewer --jobs or a smaller batch"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}" + (f"; see {output}" if output else "")
    text = output.read_text(errors="replace").strip() if output is not None and output.is_file() else ""
    return f"ended with code {code}: {text.splitlines()[-1] if text else 'no output'}"


def end_with_parent() -> None:
    """End this process when its standard input closes; leave Ctrl-C to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # started by hand, the input may be anything
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(_STOPPED)  # training is in C code most of the time, which no gentler way interrupts


def default_slots() -> int:
    """Return how many jobs this machine should run at a time: one for each GPU, else for each core."""
    if gpus := _gpus():
        return gpus
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(_cores(), memory // MEMORY_PER_JOB))


def worker_environment(slot: int, slots: int) -> dict[str, str]:
    """Return a process's share of the cores, unless ``OMP_NUM_THREADS`` is set, and its GPU."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, _cores() // slots))
    environment = dict.fromkeys(names, threads)
    if gpus := _gpus():
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = allowed if len(allowed) == gpus else [str(number) for number in range(gpus)]
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % gpus]
    return environment


def _gpus() -> int:
    import torch  # noqa: PLC0415  not needed to read a folder

    return torch.cuda.device_count()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
