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
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
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


Tell = Callable[[Event | Mapping[str, Any]], None]
"""Receives the events of a job, and at its end its ``value`` or ``error``; from any thread."""


class Runner(Protocol):
    """Runs jobs."""

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """Start jobs in order as there is room, and yield their news, at least once a second.

        The next job is taken from ``jobs`` when it can start. Closing the iterator stops the jobs that are
        running. To resume, submit the jobs that are missing.
        """
        ...


class _OnThisMachine(ABC):
    """Runs jobs in slots of this machine."""

    slots: int

    @abstractmethod
    def start(self, job: Job, slot: int, tell: Tell) -> Callable[[], object]:
        """Start a job, and return what stops it."""

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """See :meth:`Runner.run`."""
        news = queue.SimpleQueue[tuple[int, Event | Mapping[str, Any]]]()
        waiting, running = iter(jobs), dict[int, tuple[Job, float, Callable[[], object]]]()
        try:
            while True:
                free = (slot for slot in range(self.slots) if slot not in running)
                for slot, job in zip(free, waiting, strict=False):

                    def tell(what: Event | Mapping[str, Any], slot: int = slot) -> None:
                        news.put((slot, what))

                    running[slot] = job, time.monotonic(), self.start(job, slot, tell)
                    yield Update(job)
                if not running:
                    return
                try:
                    slot, what = news.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    for job, start, _ in running.values():
                        yield Update(job, time.monotonic() - start)
                    continue
                job, start, _ = running[slot]
                if isinstance(what, Event):
                    yield Update(job, time.monotonic() - start, what)
                else:
                    del running[slot]
                    yield Update(job, time.monotonic() - start, is_end=True, **what)
        finally:
            for _, _, stop in running.values():
                stop()


class _StoppedError(BaseException):
    """Raised in a job whose runner was closed."""


class Here(_OnThisMachine):
    """Runs jobs one after the other in this process, beside the thread that receives their news."""

    slots = 1

    def start(self, job: Job, slot: int, tell: Tell) -> Callable[[], object]:  # noqa: ARG002
        """Start a job in a thread; one that is stopped ends at its next event."""
        stopped = threading.Event()

        def report(event: Event) -> None:
            if stopped.is_set():
                raise _StoppedError
            tell(event)

        def work() -> None:
            with suppress(_StoppedError):
                tell(outcome_of(job, report))

        def stop() -> None:
            stopped.set()
            thread.join()

        thread = threading.Thread(target=work, name=job.name)
        thread.start()
        return stop


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
class Processes(_OnThisMachine):
    """Runs jobs in new processes of this machine; they share its cores, and each has one GPU if any.

    Attributes:
        slots: how many jobs run at a time.
    """

    slots: int

    def start(self, job: Job, slot: int, tell: Tell) -> Callable[[], object]:
        """Start a process for a job; its events are lines of its standard output."""
        asked = {"name": job.name, "function": job.function, "arguments": dict(job.arguments)}
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with nullcontext() if job.output is None else job.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps(asked)],
                stdin=subprocess.PIPE,  # it ends with this process, and the child ends with it
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, **paths, **worker_environment(slot, self.slots)},
            )
        threading.Thread(target=_listen, args=(job, process, tell), daemon=True).start()
        return partial(_stop, process)


def _listen(job: Job, process: "subprocess.Popen[bytes]", tell: Tell) -> None:
    """Pass on what a process reports, and how it ended."""
    ended = None
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            content = json.loads(line)
            if "stage" in content:
                tell(Event(**content))
            else:
                ended = content
    tell(ended or {"error": exit_message(process.returncode, job.output)})


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Close the standard input of a process, which ends it; kill it if it does not end."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Do the job of the command line in a process of its own, which ends when its standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    threading.Thread(target=_end_with_input, daemon=True).start()
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the job prints is no event

    def tell(content: object) -> None:
        print(json.dumps(content, default=str), file=events, flush=True)

    outcome = outcome_of(Job(**json.loads(sys.argv[1])), lambda event: tell(asdict(event)))
    tell(outcome)
    sys.exit(1 if "error" in outcome else 0)


def exit_message(code: int, output: Path | None) -> str:
    """Return how a process ended that reported no error."""
    if code == -9:  # SIGKILL, which a system without free memory also sends
        return "killed by the system, probably out of memory; use fewer --jobs or a smaller batch"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}" + (f"; see {output}" if output else "")
    text = output.read_text(errors="replace").strip() if output is not None and output.is_file() else ""
    return f"ended with code {code}: {text.splitlines()[-1] if text else 'no output'}"


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
