"""Jobs on a Ray cluster."""

import os
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparseshot.work.folder import Event
from sparseshot.work.ray_cluster import RETRIES, RayCluster
from sparseshot.work.runner import MEMORY_PER_JOB, Job, Update, outcome_of

_POLL_SECONDS, _EVENT_SECONDS = 0.2, 0.5


@dataclass(frozen=True)
class RayRunner:
    """Runs jobs on the nodes of a Ray cluster; paths in their arguments must exist on all of them.

    A job whose worker or node was lost starts again.

    Attributes:
        cluster: the cluster.
        most: how many jobs run at a time; None for as many as the nodes have room for.
        cpus: of each job, unless ``OMP_NUM_THREADS`` says otherwise.
        memory_bytes: of each job.
        ahead: jobs that Ray holds for each one that can run, so that no node waits for this process.
    """

    cluster: RayCluster
    most: int | None = None
    cpus: int = 1
    memory_bytes: int = MEMORY_PER_JOB
    ahead: int = 1

    def run(self, jobs: Iterable[Job]) -> Generator[Update]:
        """See :meth:`~sparseshot.work.runner.Runner.run`."""
        import ray  # noqa: PLC0415  an extra

        needs = self.cluster.needs(cpus=self.cpus, memory_bytes=self.memory_bytes)
        waiting, running = iter(jobs), dict[Any, tuple[Job, float]]()
        mailbox = ray.remote(Mailbox).options(num_cpus=0, **self.cluster.on_this_node()).remote()
        try:
            while True:
                room = min(self.ahead * self.cluster.slots(needs), self.most or sys.maxsize)
                while len(running) < room and (job := next(waiting, None)) is not None:
                    # A worker that may run one job only exits after it.
                    task = ray.remote(max_calls=0 if job.reuses_process else 1)(run_job)
                    here = replace(job, output=job.output and job.output.absolute())
                    reference = task.options(**needs.options()).remote(
                        here, str(Path.cwd()), needs.cpus, mailbox
                    )
                    running[reference] = job, time.monotonic()
                    yield Update(job)
                if not running:
                    return
                ready, _ = ray.wait(list(running), timeout=_POLL_SECONDS)
                names = {job.name: (job, start) for job, start in running.values()}
                for name, event in ray.get(mailbox.take.remote()):
                    if name in names:
                        job, start = names[name]
                        yield Update(job, time.monotonic() - start, event)
                for reference in ready:
                    job, start = running.pop(reference)
                    yield Update(job, time.monotonic() - start, is_end=True, **_ended(reference))
                for job, start in list(running.values()):
                    yield Update(job, time.monotonic() - start)
        finally:
            # Leaving the cluster ends the tasks too, and Ray may abort a process that does both.
            if self.cluster.stays:
                ray.kill(mailbox)
                for reference in running:
                    ray.cancel(reference, force=True)


class Mailbox:
    """Keeps the latest event of each job until the runner takes it; lives on the runner's node."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}

    def post(self, name: str, event: Event) -> None:
        """Keep an event."""
        self._events[name] = event

    def take(self) -> list[tuple[str, Event]]:
        """Return the events since the last call."""
        events, self._events = list(self._events.items()), {}
        return events


def run_job(job: Job, folder: str, threads: int, mailbox: Any) -> dict[str, Any]:
    """Do a job on this node, in the same folder if it is there; return its value or its error."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(threads)
    if Path(folder).is_dir():
        os.chdir(folder)
    if job.output is not None and not job.reuses_process:
        with job.output.open("ab") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
    last = deque([0.0], maxlen=1)

    def report(event: Event) -> None:
        if (now := time.monotonic()) - last[0] >= _EVENT_SECONDS:
            last.append(now)
            mailbox.post.remote(job.name, event)

    return outcome_of(job, report)


def _ended(reference: Any) -> dict[str, Any]:
    """Return the value of a job, or its error."""
    import ray  # noqa: PLC0415

    try:
        outcome: dict[str, Any] = ray.get(reference)
    except ray.exceptions.OutOfMemoryError:
        return {"error": "its node has too little memory"}
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
        return {"error": f"its worker or node was lost {RETRIES + 1} times"}
    except ray.exceptions.RayError as error:
        return {"error": str(error).strip().splitlines()[-1]}
    return outcome
