"""Where work runs: in processes on this machine, or on a Ray cluster.

::

    executor  commands in separate processes, and the interface that runs them
    local     on this machine
    ray_tasks functions on a Ray cluster, a bounded number at a time
    ray_jobs  commands on a Ray cluster
    joining   how a Ray cluster is joined, and what is checked before anything runs on it
"""

from sparseshot.cluster.executor import CommandJob, Executor, JobStatus
from sparseshot.cluster.local import LocalProcesses

__all__ = ["CommandJob", "Executor", "JobStatus", "LocalProcesses"]
