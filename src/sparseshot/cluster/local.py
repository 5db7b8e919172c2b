"""Jobs in processes on this machine."""

import os
import subprocess
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from sparseshot.cluster.executor import (
    MEMORY_PER_JOB,
    POLL_SECONDS,
    STOP_SECONDS,
    CommandJob,
    JobStatus,
    threads_environment,
)


@dataclass(frozen=True)
class LocalProcesses:
    """Runs jobs on this machine; they share its cores, and each has one GPU if any.

    Attributes:
        slots: how many jobs run at a time.
    """

    slots: int

    def run(self, jobs: Iterable[CommandJob]) -> Generator[JobStatus]:
        """See :meth:`~sparseshot.cluster.executor.Executor.run`."""
        waiting = iter(jobs)
        running: dict[int, tuple[CommandJob, subprocess.Popen[bytes], float]] = {}
        try:
            while True:
                for slot in range(self.slots):
                    if slot not in running and (job := next(waiting, None)) is not None:
                        process = start_process(job, worker_environment(slot, self.slots))
                        running[slot] = job, process, time.monotonic()
                        yield JobStatus(job)
                if not running:
                    return
                time.sleep(POLL_SECONDS)
                for slot, (job, process, start) in list(running.items()):
                    if (code := process.poll()) is not None:
                        stop_processes([running.pop(slot)[1]])
                    yield JobStatus(job, time.monotonic() - start, code)
        finally:
            stop_processes([process for _, process, _ in running.values()])


def start_process(job: CommandJob, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command of a job with some more environment variables."""
    with job.output.open("ab") as output:
        return subprocess.Popen(
            job.command,
            cwd=job.folder,
            stdin=subprocess.PIPE,  # never written to; it closes when this process ends
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )


def stop_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close the workers' standard input, which ends them; kill those that do not end."""
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
    environment = threads_environment(_cores() // slots)
    if gpus := torch.cuda.device_count():
        allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = allowed if len(allowed) == gpus else [str(number) for number in range(gpus)]
        environment["CUDA_VISIBLE_DEVICES"] = devices[slot % gpus]
    return environment


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
