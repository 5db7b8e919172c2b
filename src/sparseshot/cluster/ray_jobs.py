"""Commands on a Ray cluster."""

import sys
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sparseshot.cluster.executor import MEMORY_PER_JOB, CommandJob, JobStatus, threads_environment
from sparseshot.cluster.local import start_process, stop_processes
from sparseshot.cluster.ray_tasks import RemoteCall, run_tasks
from sparseshot.work.ray_cluster import RayCluster


@dataclass(frozen=True)
class RayProcesses:
    """Runs jobs on the nodes of a Ray cluster; paths in their commands must exist on all of them.

    Attributes:
        cluster: the cluster.
        most: how many jobs run at a time; None for as many as the nodes have room for.
    """

    cluster: RayCluster
    most: int | None = None

    def run(self, jobs: Iterable[CommandJob]) -> Generator[JobStatus]:
        """See :meth:`~sparseshot.cluster.executor.Executor.run`. A job whose node was lost starts again."""
        needs = self.cluster.needs(memory_bytes=MEMORY_PER_JOB)
        waiting = iter(jobs)
        running: dict[str, tuple[CommandJob, float]] = {}

        def take() -> RemoteCall | None:
            if (job := next(waiting, None)) is None:
                return None
            running[job.name] = job, time.monotonic()
            here = replace(job, folder=job.folder or Path.cwd())
            return RemoteCall(job.name, run_command, (here, sys.executable, needs.cpus))

        def room() -> int:
            return min(self.cluster.slots(needs), self.most or sys.maxsize)

        with closing(run_tasks(take, needs, room, cancel=self.cluster.stays)) as tasks:
            for ended in tasks:
                if ended is None:
                    for job, start in list(running.values()):
                        yield JobStatus(job, time.monotonic() - start)
                    continue
                job, start = running.pop(str(ended.key))
                if ended.lost is not None:
                    with job.output.open("a") as output:
                        output.write(f"{ended.lost}\n")
                code = 1 if ended.lost is not None else int(ended.value)
                yield JobStatus(job, time.monotonic() - start, code)


def run_command(job: CommandJob, python: str, threads: int) -> int:
    """Run the command of a job on this node, in the same folder if it is there, and return its exit code.

    Args:
        job: the job.
        python: interpreter of the caller, replaced by that of this node.
        threads: how many the process may use.
    """
    command = [sys.executable if word == python else word for word in job.command]
    folder = job.folder if job.folder is not None and job.folder.is_dir() else None
    process = start_process(replace(job, command=command, folder=folder), threads_environment(threads))
    try:
        return process.wait()
    finally:
        stop_processes([process])
