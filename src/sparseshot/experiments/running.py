"""Run what is missing of an experiment, several runs side by side, each in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from sparseshot.errors import InputError, OutputError
from sparseshot.experiments.folders import (
    ERROR,
    METRICS,
    OUTPUT,
    RUN,
    make_folder,
    plan_path,
    read_json,
    run_folder,
    write_error,
)
from sparseshot.experiments.plan import Run
from sparseshot.experiments.progress import Progress, Silent
from sparseshot.experiments.results import Result
from sparseshot.experiments.toml_file import ExperimentFile
from sparseshot.files import write_json

MEMORY_OF_A_RUN = 2 << 30
"""Bytes that a run of the quick profile may want, for the choice of how many run side by side."""

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0

Command = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class Outcome:
    """What a call did.

    Attributes:
        results: of the runs that were chosen, in the order of the experiment.
        ran: how many were run by this call; the others were finished before.
    """

    results: tuple[Result, ...]
    ran: int

    @property
    def failed(self) -> list[Result]:
        """Those that failed."""
        return [result for result in self.results if result.state == "failed"]


def run_experiment(
    file: ExperimentFile,
    *,
    root: Path | None,
    out: Path,
    jobs: int | None = None,
    only: Sequence[str] = (),
    progress: Progress | None = None,
    command: Command | None = None,
) -> Outcome:
    """Run what is missing; a run that fails is written down as failed, and the others go on.

    Killed at any time, the same call goes on where it was.

    Args:
        file: the experiment.
        root: the folder of the data sets; None where all images are one's own.
        out: the folder of plans and runs; several experiments may share one, and then share their runs.
        jobs: runs side by side; None: as many as the machine has GPUs, else as cores and memory allow.
        only: patterns of names of runs, as ``tnbc-*``; empty: all.
        progress: is told what happens.
        command: what to start for the folder of a run; None: a Python process of ours.
    """
    runs = choose(file.experiment.runs, only)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; give at least 1, or leave it out")
    missing = [run for run in runs if not is_finished(run, run_folder(out, run.name))]
    if missing:
        file.check_data(root, {run.subject.dataset for run in missing})
    make_folder(plan_path(out, "").parent)
    with alone_in(out):
        write_json(plan_path(out, file.experiment.name), file.experiment.as_json())
        before = [Result.read(run, out).seconds for run in runs if run not in missing]
        workers = _Workers(out, root and root.resolve(), jobs or good_jobs(), command or _command)
        progress = progress or Silent()
        progress.begun(len(before), len(missing))
        workers.do(missing, progress, before)
    return Outcome(tuple(Result.read(run, out) for run in runs), ran=len(missing))


def choose(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names fit one of the patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(run.name, pattern) for run in runs):
            raise InputError(f"no run fits --only {pattern!r}; runs have names like {runs[0].name}")
    return [run for run in runs if not patterns or any(fnmatchcase(run.name, p) for p in patterns)]


def is_finished(run: Run, folder: Path) -> bool:
    """Tell whether a folder holds the finished run; one of other settings in the folder is an error."""
    for name in ("config.json", RUN):
        if (folder / name).is_file():
            _check_same(run, folder, name)
    return (folder / METRICS).is_file()


def _check_same(run: Run, folder: Path, name: str) -> None:
    there = dict(read_json(folder / name))
    here = json.loads(run.config().to_json())
    if name == RUN:  # of which only the rounds are not in the configuration
        keys = ("rounds", "tau") if run.method.rounds > 1 else ("rounds",)
        there = {key: there["run"]["method"][key] for key in keys}
        here = {key: getattr(run.method, key) for key in keys}
    changes = [
        f"{key} {there.get(key)!r} instead of {value!r}"
        for key, value in here.items()
        if there.get(key) != value
    ]
    if changes:
        raise OutputError(
            folder, f"holds a run with {', '.join(changes)}; choose another --out, or delete the folder"
        )


def good_jobs() -> int:
    """Return how many runs this machine should do side by side."""
    if gpus := torch.cuda.device_count():
        return gpus
    jobs = _cores()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        jobs = min(jobs, memory // MEMORY_OF_A_RUN)
    return max(1, jobs)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keep a second call out of the folder, where the system can; the lock goes with the process."""
    try:
        import fcntl  # noqa: PLC0415  not there on Windows
    except ImportError:
        yield
        return
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                out, "another sparseshot is at work here; wait for it, or choose another --out"
            ) from error
        yield


def _command(folder: Path) -> Sequence[str]:
    return (sys.executable, "-m", "sparseshot.experiments.worker", str(folder))


@dataclass(frozen=True)
class _Working:
    run: Run
    process: subprocess.Popen[bytes]
    since: float


@dataclass(frozen=True)
class _Workers:
    """So many processes at a time, each with its share of the cores, or its GPU."""

    out: Path
    root: Path | None
    jobs: int
    command: Command

    def do(self, runs: Sequence[Run], progress: Progress, seconds: Sequence[float]) -> None:
        """Do all runs; ``seconds`` are what others took, to tell how long these will take."""
        waiting, taken = deque(runs), list(seconds)
        working: dict[int, _Working] = {}
        try:
            while waiting or working:
                for slot in range(self.jobs):
                    if slot not in working and waiting:
                        working[slot] = self._start(waiting.popleft(), slot)
                        progress.started(working[slot].run)
                time.sleep(_LOOK_SECONDS)
                for slot, one in list(working.items()):
                    code = one.process.poll()
                    if code is not None:
                        del working[slot]
                        taken.append(time.monotonic() - one.since)
                        left = self._seconds_left(taken, working, len(waiting))
                        progress.ended(self._settle(one, code), taken[-1], left)
                names = [one.run.name for one in working.values()]
                progress.working({name: run_folder(self.out, name) for name in names})
        finally:
            stop([one.process for one in working.values()])

    def _start(self, run: Run, slot: int) -> _Working:
        folder = run_folder(self.out, run.name)
        make_folder(folder)
        (folder / ERROR).unlink(missing_ok=True)
        write_json(folder / RUN, {"run": run.as_json(), "root": self.root and str(self.root)})
        with (folder / OUTPUT).open("ab") as output:
            process = subprocess.Popen(
                self.command(folder),
                stdin=subprocess.PIPE,  # never written to; it closes when we end, and the worker ends with it
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | worker_environment(slot, self.jobs),
            )
        return _Working(run, process, time.monotonic())

    def _settle(self, one: _Working, code: int) -> Result:
        """Return the result of a run that ended; if it left no word, write down how it ended."""
        if one.process.stdin is not None:
            one.process.stdin.close()
        folder = run_folder(self.out, one.run.name)
        if not (folder / METRICS).is_file() and not (folder / ERROR).is_file():
            write_error(folder, kind="WorkerDied", message=how_it_died(code, folder / OUTPUT))
        return Result.read(one.run, self.out)

    def _seconds_left(self, taken: Sequence[float], working: Mapping[int, _Working], waiting: int) -> float:
        mean = sum(taken) / len(taken)
        now = time.monotonic()
        begun = sum(max(0.0, mean - (now - one.since)) for one in working.values())
        return (begun + mean * waiting) / self.jobs


def worker_environment(slot: int, jobs: int) -> dict[str, str]:
    """Return a worker its share of the cores, unless ``OMP_NUM_THREADS`` is set, and its GPU."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, _cores() // jobs))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = dict.fromkeys(names, threads)
    if gpus := torch.cuda.device_count():
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = allowed if len(allowed) == gpus else [str(number) for number in range(gpus)]
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % gpus]
    return environment


def how_it_died(code: int, output: Path) -> str:
    """Tell how a process ended that left no word."""
    if code == -9:  # SIGKILL, which is also what a system does that has no memory left
        return "killed by the system, most likely for want of memory; give fewer --jobs, or a smaller batch"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}; see {output.name} in its folder"
    lines = output.read_text(errors="replace").strip().splitlines() if output.is_file() else []
    return f"ended with code {code}: {lines[-1] if lines else 'it said nothing'}"


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let workers end, by closing what they listen to; kill those that do not."""
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()
    for process in processes:
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
