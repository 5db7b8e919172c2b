"""Prediction of many slides on a Ray cluster, with the same bytes as on one machine."""

import os
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sparseshot.cluster.joining import RayCluster
from sparseshot.cluster.ray_tasks import Ended, RemoteCall, run_tasks
from sparseshot.errors import ClusterError, OutputError, utf8
from sparseshot.files import locked, make_folder
from sparseshot.prediction.cluster_tasks import (
    WHOLE_TILES,
    Begun,
    ClusterWork,
    begin_slide,
    find_in_band,
    precision_of_nodes,
    settle_slide,
)
from sparseshot.prediction.compiled_network import int8_engine
from sparseshot.prediction.naming import safe_name
from sparseshot.prediction.slides import DEFAULT_OPTIONS, Outcome, PredictionOptions
from sparseshot.terminal import Begin, no_progress
from sparseshot.training.checkpoint import Checkpoint

_AHEAD = 2
"""Tasks that Ray holds for each one that can run, so that no node waits for this process."""

THREADS = 2
"""Threads of a task. PyTorch's results differ between one thread and several, but not between two and more.
So two give the results of a process that has all cores of a machine."""

_REPORT_SECONDS, _SPEED_SECONDS = 0.5, 30.0


def predict_on_cluster(
    paths: Sequence[Path],
    checkpoint: Checkpoint,
    out: Path,
    *,
    cluster: RayCluster,
    load: Mapping[str, Any],
    options: PredictionOptions = DEFAULT_OPTIONS,
    whole_tiles: int = WHOLE_TILES,
    begin: Begin = no_progress,
) -> list[Outcome]:
    """Predict slides on the nodes of a cluster, each into its own folder inside ``out``.

    A small slide is one task; of a large one, each band. What a task has finished is in the folder, so that
    a lost node, a killed worker or a new start of this call costs only what was being computed.

    Args:
        paths: of the slides; every node sees them.
        checkpoint: of the model.
        out: folder of all results; every node shares it.
        cluster: where the tasks run.
        load: further arguments of :meth:`~sparseshot.prediction.model.Model.load`.
        options: the same for all slides.
        whole_tiles: a slide with more tiles is divided into its bands.
        begin: shows progress.
    """
    import ray  # noqa: PLC0415  an extra

    make_folder(out)
    needs = cluster.needs(cpus=min(THREADS, os.cpu_count() or 1))
    cluster.check(out.absolute(), sorted({path.absolute().parent for path in paths}))
    device = "cuda" if cluster.has_gpus else "cpu" if cluster.device == "auto" else cluster.device
    if load.get("precision") == "int8":
        int8_engine(load.get("engine", "auto"), torch.device(device))  # raises here, not for each slide
    work = ClusterWork(
        key=uuid.uuid4().hex,
        checkpoint=replace(checkpoint, state={}),
        load={**load, "device": device},
        out=out.absolute(),
        options=options,
        threads=needs.cpus,
        whole_tiles=whole_tiles,
    )
    if load.get("precision", "auto") == "auto":
        # Decided once, because nodes might decide differently.
        asked = ray.remote(precision_of_nodes).options(**needs.options())
        try:
            precision = ray.get(asked.remote(work.key, [ray.put(work)]))
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"the model cannot be loaded on a node: {error.cause}") from error
        work = replace(work, key=uuid.uuid4().hex, load={**work.load, "precision": precision})
    slides = SlidesUnderWay([path.absolute() for path in paths], (work.key, [ray.put(work)]))
    show = _Display(begin, cluster, len(paths))

    def room() -> int:
        return _AHEAD * cluster.slots(needs)

    try:
        with closing(run_tasks(slides.take, needs, room, cancel=cluster.stays)) as tasks:
            for ended in tasks:
                if ended is not None:
                    slides.note(ended)
                show(slides)
    finally:
        slides.close()
    show(slides, last=True)
    return [
        replace(slides.outcomes[index], path=path, summary=_where(slides.outcomes[index], out))
        for index, path in enumerate(paths)
    ]


def _where(outcome: Outcome, out: Path) -> Any:
    """Return the summary with the folder as the caller named it."""
    summary = outcome.summary
    return None if summary is None else replace(summary, folder=out / summary.folder.name)


@dataclass
class _OpenSlide:
    """A slide that is divided into bands."""

    folder: Path
    left: dict[int, int]
    lock: ExitStack
    started: float
    tiles: int = 0


@dataclass
class SlidesUnderWay:
    """The next task, and the outcome of each slide.

    Bands of slides that are begun come first, so that few slides are under way at a time. Slides of one name
    come one after another, because which folder a slide gets depends on those before it.
    """

    paths: Sequence[Path]
    shared: tuple[str, list[Any]]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    tiles: int = 0
    of_tiles: int = 0
    _ready: deque[RemoteCall] = field(default_factory=deque)
    _open: dict[int, _OpenSlide] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = [safe_name(utf8(path.name)) for path in self.paths]
        self._twice = {name for name, count in Counter(self._names).items() if count > 1}
        self._waiting: Iterator[int] = iter(range(len(self.paths)))
        self._held: dict[str, deque[int]] = defaultdict(deque)
        self._taken: dict[str, set[Path]] = defaultdict(set)
        self._busy: set[str] = set()

    def take(self) -> RemoteCall | None:
        """Return the next task that can run; None if all depend on others."""
        if self._ready:
            return self._ready.popleft()
        for index in self._waiting:
            name = self._names[index]
            if name not in self._busy:
                return self._beginning(index)
            self._held[name].append(index)
        return None

    def _beginning(self, index: int) -> RemoteCall:
        name = self._names[index]
        if name in self._twice:
            self._busy.add(name)
        taken = frozenset(self._taken.get(name, ()))
        return RemoteCall((index, None), begin_slide, (*self.shared, self.paths[index], taken))

    def note(self, ended: Ended) -> None:
        """Record the result of a task, and queue the tasks that follow."""
        index, band = ended.key
        value = ended.value
        if index in self.outcomes:  # another of its bands has failed
            return
        if ended.lost is not None:
            value = Outcome(self.paths[index], error=f"{self.paths[index]}: {ended.lost}")
        if isinstance(value, Begun):
            self._begun(index, value)
        elif isinstance(value, Outcome):
            self._end(index, value)
        else:
            self._found(index, band)

    def _begun(self, index: int, begun: Begun) -> None:
        if begun.folder is not None and self._names[index] in self._twice:
            self._taken[self._names[index]].add(begun.folder)
        if begun.outcome is not None:
            if begun.outcome.summary is not None:
                self.tiles += begun.outcome.summary.tiles
                self.of_tiles += begun.outcome.summary.tiles
            self._end(index, begun.outcome)
            return
        assert begun.folder is not None
        assert begun.bands is not None
        lock = ExitStack()
        try:
            lock.enter_context(locked(begun.folder))  # held here, because a slide has many tasks
        except (OutputError, OSError) as error:
            self._end(index, Outcome(self.paths[index], error=str(error)))
            return
        self._open[index] = _OpenSlide(begun.folder, dict(begun.bands), lock, time.perf_counter())
        self.of_tiles += sum(begun.bands.values())
        place = (*self.shared, self.paths[index], begun.folder)
        self._ready += [RemoteCall((index, band), find_in_band, (*place, band)) for band in begun.bands]
        self._settle_if_found(index)

    def _found(self, index: int, band: int) -> None:
        slide = self._open[index]
        tiles = slide.left.pop(band)
        slide.tiles += tiles
        self.tiles += tiles
        self._settle_if_found(index)

    def _settle_if_found(self, index: int) -> None:
        slide = self._open[index]
        if not slide.left:
            place = (*self.shared, self.paths[index], slide.folder)
            self._ready.appendleft(RemoteCall((index, None), settle_slide, place))

    def _end(self, index: int, outcome: Outcome) -> None:
        if (slide := self._open.pop(index, None)) is not None:
            slide.lock.close()
            self.of_tiles -= sum(slide.left.values())
            self._ready = deque(call for call in self._ready if call.key[0] != index)
            if outcome.summary is not None:
                seconds = time.perf_counter() - slide.started
                outcome = replace(
                    outcome, summary=replace(outcome.summary, tiles=slide.tiles, seconds=seconds)
                )
        self.outcomes.setdefault(index, outcome)
        name = self._names[index]
        self._busy.discard(name)
        if self._held.get(name):
            self._ready.appendleft(self._beginning(self._held[name].popleft()))

    def close(self) -> None:
        """Unlock the folders of slides that are under way."""
        for slide in self._open.values():
            slide.lock.close()


class _Display:
    """Slides and tiles so far, the nodes, and tiles per second."""

    def __init__(self, begin: Begin, cluster: RayCluster, slides: int) -> None:
        self._tiles, self._slides = begin("tiles"), begin("slides", slides)
        self._cluster, self._next = cluster, 0.0
        self._seen = deque([(time.monotonic(), 0)], maxlen=round(_SPEED_SECONDS / _REPORT_SECONDS))

    def __call__(self, slides: SlidesUnderWay, *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next = now + _REPORT_SECONDS
        failed = sum(each.error is not None for each in slides.outcomes.values())
        self._seen.append((now, slides.tiles))
        (before, tiles), after = self._seen[0], self._seen[-1]
        speed = (after[1] - tiles) / max(after[0] - before, 1e-9)
        note = f"{len(self._cluster.nodes())} nodes, {speed:.1f} tiles/s"
        self._tiles(slides.tiles, slides.of_tiles)
        self._slides(len(slides.outcomes), note=f"{note}, {failed} failed" if failed else note)
