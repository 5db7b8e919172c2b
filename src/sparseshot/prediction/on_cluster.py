"""Prediction of many slides on a Ray cluster: a slide is a task, with the same bytes as on one machine."""

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from sparseshot.cluster.ray_tasks import Ended, RemoteCall, run_tasks
from sparseshot.errors import ClusterError, utf8
from sparseshot.files import make_folder
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.prediction.model import Model
from sparseshot.prediction.naming import safe_name
from sparseshot.prediction.slides import DEFAULT_OPTIONS, Outcome, PredictionOptions, predict_slides
from sparseshot.terminal import Begin, no_progress
from sparseshot.work.ray_cluster import RayCluster

_AHEAD = 2
"""Tasks that Ray holds for each one that can run, so that no node waits for this process."""

THREADS = 2
"""Threads of a task. PyTorch's results differ between one thread and several, but not between two and more.
So two give the results of a process that has all cores of a machine."""

_LOCK_SECONDS = 60.0
"""Wait for the lock of a folder that a cancelled task, or one of a killed caller, still holds."""

_REPORT_SECONDS, _SPEED_SECONDS = 0.5, 30.0


@dataclass(frozen=True)
class ClusterWork:
    """What all tasks of a prediction need; stored once in Ray's object store.

    Attributes:
        checkpoint: of the model.
        load: further arguments of :meth:`~sparseshot.prediction.model.Model.load`.
        out: folder of all results.
        options: the same for all slides.
        threads: of PyTorch in each task.
    """

    checkpoint: Checkpoint
    load: Mapping[str, Any]
    out: Path
    options: PredictionOptions
    threads: int


def predict_on_cluster(
    paths: Sequence[Path],
    checkpoint: Checkpoint,
    out: Path,
    *,
    cluster: RayCluster,
    load: Mapping[str, Any],
    options: PredictionOptions = DEFAULT_OPTIONS,
    begin: Begin = no_progress,
) -> list[Outcome]:
    """Predict slides on the nodes of a cluster, each into its own folder inside ``out``.

    Shards that a task has finished are in the folder of the slide. A task that starts again after its worker
    or node was lost, or by a new call, resumes after the last one.

    Args:
        paths: of the slides; every node sees them.
        checkpoint: of the model.
        out: folder of all results; every node shares it.
        cluster: where the tasks run.
        load: further arguments of :meth:`~sparseshot.prediction.model.Model.load`.
        options: the same for all slides.
        begin: shows progress.
    """
    import ray  # noqa: PLC0415  an extra

    make_folder(out)
    needs = cluster.needs(cpus=min(THREADS, os.cpu_count() or 1))
    cluster.check(out.absolute(), sorted({path.absolute().parent for path in paths}))
    device = "cuda" if cluster.has_gpus else "cpu" if cluster.device == "auto" else cluster.device
    work = ClusterWork(
        checkpoint=replace(checkpoint, state={}),
        load={**load, "device": device},
        out=out.absolute(),
        options=options,
        threads=needs.cpus,
    )
    if load.get("precision", "auto") == "auto":
        # Decided once, because nodes might decide differently.
        asked = ray.remote(precision_of_nodes).options(**needs.options())
        try:
            precision = ray.get(asked.remote([ray.put(work)]))
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"the model cannot be loaded on a node: {error.cause}") from error
        work = replace(work, load={**work.load, "precision": precision})
    shared = [ray.put(work)]
    groups = _of_one_name(paths)
    waiting = iter(
        [RemoteCall(k, predict_group, (shared, list(map(Path.absolute, g)))) for k, g in enumerate(groups)]
    )
    outcomes: dict[Path, Outcome] = {}
    show = _Display(begin, cluster, len(paths))

    def room() -> int:
        return _AHEAD * cluster.slots(needs)

    with closing(run_tasks(lambda: next(waiting, None), needs, room, cancel=cluster.stays)) as tasks:
        for ended in tasks:
            if ended is not None:
                outcomes |= _outcomes(ended, groups[ended.key], out)
            show(outcomes)
    show(outcomes, last=True)
    return [outcomes[path] for path in paths]


def precision_of_nodes(work: list[Any]) -> str:
    """Return the precision that ``auto`` means on this node."""
    return _loaded(work[0])[1].precision


def predict_group(work: list[Any], paths: Sequence[Path]) -> list[Outcome]:
    """Predict slides on this node.

    Args:
        work: holds a reference to the :class:`ClusterWork`.
        paths: slides of one name, mostly one; which folder the second gets depends on the first.
    """
    asked, model = _loaded(work[0])
    return predict_slides(paths, model, asked.out, options=asked.options, wait_s=_LOCK_SECONDS)


@lru_cache(maxsize=1)
def _loaded(reference: Any) -> tuple[ClusterWork, Model]:
    """Fetch the work and load the model, once for all tasks of this process."""
    import ray  # noqa: PLC0415

    work: ClusterWork = ray.get(reference)
    torch.set_num_threads(work.threads)
    return work, Model.load(work.checkpoint, **work.load)


def _of_one_name(paths: Sequence[Path]) -> list[list[Path]]:
    """Return the slides in groups that would have the same folder."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(safe_name(utf8(path.name)), []).append(path)
    return list(groups.values())


def _outcomes(ended: Ended, group: Sequence[Path], out: Path) -> dict[Path, Outcome]:
    """Return the outcomes of a task, with paths and folders as the caller named them."""
    if ended.lost is not None:
        return {path: Outcome(path, error=f"{path}: {ended.lost}") for path in group}
    found: dict[Path, Outcome] = {}
    for path, outcome in zip(group, ended.value, strict=True):
        summary = outcome.summary
        there = None if summary is None else replace(summary, folder=out / summary.folder.name)
        found[path] = replace(outcome, path=path, summary=there)
    return found


class _Display:
    """Slides so far, the nodes, and tiles per second."""

    def __init__(self, begin: Begin, cluster: RayCluster, slides: int) -> None:
        self._slides = begin("slides", slides)
        self._cluster, self._next = cluster, 0.0
        self._seen = deque([(time.monotonic(), 0)], maxlen=round(_SPEED_SECONDS / _REPORT_SECONDS))

    def __call__(self, outcomes: Mapping[Path, Outcome], *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next = now + _REPORT_SECONDS
        failed = sum(each.error is not None for each in outcomes.values())
        self._seen.append((now, sum(each.summary.tiles for each in outcomes.values() if each.summary)))
        (before, tiles), after = self._seen[0], self._seen[-1]
        speed = (after[1] - tiles) / max(after[0] - before, 1e-9)
        note = f"{len(self._cluster.nodes())} nodes, {speed:.1f} tiles/s"
        self._slides(len(outcomes), note=f"{note}, {failed} failed" if failed else note)
