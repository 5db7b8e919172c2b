"""Functions on a Ray cluster, a bounded number at a time."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from sparseshot.work.ray_cluster import RETRIES, Needs

_POLL_SECONDS = 0.2


class RemoteCall(NamedTuple):
    """A function to call on some node; ``key`` identifies the call."""

    key: Any
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Ended(NamedTuple):
    """A call that has ended: what it returned, or why it was lost."""

    key: Any
    value: Any = None
    lost: str | None = None


def run_tasks(
    take: Callable[[], RemoteCall | None], needs: Needs, room: Callable[[], int], *, cancel: bool
) -> Generator[Ended | None]:
    """Call functions on the nodes, and yield each call that has ended; None several times a second.

    Ray starts a task again whose worker or node was lost; a function must therefore tolerate being called
    twice.

    Args:
        take: returns the next call when there is room for it; None if there is none at the moment. The
            iterator ends when there is none and nothing runs.
        needs: of each call.
        room: returns how many tasks Ray may hold at a time. Their number, and not that of all calls, decides
            how much memory this process needs.
        cancel: whether closing the iterator cancels the tasks. Leaving the cluster ends them too, and Ray may
            abort a process that does both.
    """
    import ray  # noqa: PLC0415  an extra

    options = needs.options()
    remote: dict[Callable[..., Any], Any] = {}
    running: dict[Any, RemoteCall] = {}
    try:
        while True:
            most = room()
            while len(running) < most and (call := take()) is not None:
                if call.function not in remote:
                    remote[call.function] = ray.remote(call.function).options(**options)
                running[remote[call.function].remote(*call.arguments)] = call
            if not running:
                return
            ready, _ = ray.wait(list(running), timeout=_POLL_SECONDS)
            if ready:
                ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
            for reference in ready:
                yield _ended(running.pop(reference).key, reference)
            yield None
    finally:
        for reference in running if cancel else ():
            ray.cancel(reference, force=True)


def _ended(key: Any, reference: Any) -> Ended:
    import ray  # noqa: PLC0415

    try:
        return Ended(key, ray.get(reference))
    except ray.exceptions.OutOfMemoryError:
        return Ended(key, lost="its node has too little memory")
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
        return Ended(key, lost=f"its worker or node was lost {RETRIES + 1} times")
    except ray.exceptions.RayError as error:
        return Ended(key, lost=str(error).strip().splitlines()[-1])
