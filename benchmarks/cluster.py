"""A Ray cluster on this machine: overhead, the parts of a prediction, many simulated slides, scaling.

Writes its tables into ``docs/how-to/cluster.md``. The cluster has one node with the cores of this machine;
the scaling to many nodes is computed from the measured parts.
"""

import hashlib
import logging
import os
import re
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from benchmarks.prediction import Repeated, untrained_checkpoint
from benchmarks.timing import seconds_in_turns
from sparseshot.cluster.joining import RayCluster
from sparseshot.cluster.ray_tasks import Needs, RemoteCall, run_tasks
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.files import locked
from sparseshot.images import open_slide
from sparseshot.models.windows import WindowLayout
from sparseshot.pages import table
from sparseshot.prediction import Model, on_cluster, predict_slide
from sparseshot.prediction.bands import find_band, settle_bands
from sparseshot.prediction.cluster_tasks import Begun
from sparseshot.prediction.engine import DEFAULT_PACE
from sparseshot.prediction.manifest import File, Manifest, Shard
from sparseshot.prediction.on_cluster import SlidesUnderWay, predict_on_cluster
from sparseshot.prediction.slide_folder import SlideFolder, tiles_in
from sparseshot.prediction.slides import Outcome, predict_slides
from sparseshot.prediction.summary import PredictionSummary
from sparseshot.training.checkpoint import Checkpoint

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "cluster.md"
SMALL_PX, LARGE_PX = 4096, 8192
WHOLE_TILES = 8
SIMULATED = (1_000, 3_000, 10_000)
NODES = (1, 10, 100)
REFERENCE_TILES, REFERENCE_CELLS = 1_034, 1_182_205
"""The slide of 100,000 × 100,000 pixels in docs/prediction.md."""

SERVER_BYTES_PER_SECOND = 1e9
"""What a file server with ten gigabits per second delivers."""


@contextmanager
def one_node() -> Iterator[RayCluster]:
    """Start a cluster with the cores of this machine."""
    import ray

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ.pop("OMP_NUM_THREADS", None)
    cpus = len(os.sched_getaffinity(0))
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield RayCluster()
    finally:
        ray.shutdown()


def content(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def overhead(cluster: RayCluster, checkpoint: Checkpoint, slides: list[Path], folder: Path) -> str:
    """Time the same slides with and without Ray, on the same cores, after everything is warm."""
    model = Model.load(checkpoint, device="cpu", precision="32")

    def alone(paths: list[Path], out: Path) -> list[Outcome]:
        return predict_slides(paths, model, out)

    def with_ray(paths: list[Path], out: Path) -> list[Outcome]:
        return predict_on_cluster(
            paths, checkpoint, out, cluster=cluster, load={"precision": "32"}, whole_tiles=WHOLE_TILES
        )

    rows = []
    for name, paths in (("six small slides", slides[:6]), ("one large slide in bands", slides[6:])):
        wall, work = {}, {}
        for how in (alone, with_ray):
            how(slides[:1], folder / f"warm {how.__name__}")
            start, before = time.perf_counter(), _cpu_seconds()
            outcomes = how(paths, folder / f"{name} {how.__name__}")
            wall[how], work[how] = time.perf_counter() - start, _cpu_seconds() - before
        same = content(folder / f"{name} alone") == content(folder / f"{name} with_ray")
        tiles = sum(each.summary.tiles for each in outcomes if each.summary)
        rows.append(
            [
                name,
                str(tiles),
                f"{wall[alone]:.1f}",
                f"{wall[with_ray]:.1f}",
                f"{wall[with_ray] / wall[alone] - 1:+.0%}",
                f"{work[alone]:.1f}",
                f"{work[with_ray]:.1f}",
                f"{work[with_ray] / work[alone] - 1:+.0%}",
                "yes" if same else "NO",
            ]
        )
    header = ["", "tiles", "without Ray, s", "with Ray, s", "overhead"]
    header += ["without Ray, CPU s", "with Ray, CPU s", "overhead", "same bytes"]
    return (
        "The same slides on the same cores after everything has started, in time and in CPU time; other work "
        f"on the machine disturbs the first more than the second:\n\n{table(header, rows)}"
    )


def _cpu_seconds() -> float:
    """Return the CPU time so far of this process and of those it has started, Ray's among them."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = path.read_text().rpartition(") ")[2].split()
            parents[int(path.parent.name)], ticks[int(path.parent.name)] = int(words[1]), words[11:13]
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(int(each) for pid in own for each in ticks[pid]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Parts:
    """Seconds of each part of a prediction: of CPU time, so that other work on the machine does not count.

    Attributes:
        tile: a tile through the network, read, found and written down.
        begin: opening a slide, its fingerprint and its tissue, per tile of the slide.
        settle: settling, per cell.
        shard: writing a shard and the manifest until they are on disk, per band; not of CPU time.
        manifest: of these, the manifest alone.
        export: everything that is made of all shards, per cell.
        task: an empty task, of this process alone.
        weights: fetching and loading the model, once per process.
        weight_bytes: size of the model in the object store.
        read_bytes: of the slide's file, per tile.
    """

    tile: float
    begin: float
    settle: float
    shard: float
    manifest: float
    export: float
    task: float
    weights: float
    weight_bytes: int
    read_bytes: float


def measured(checkpoint: Checkpoint, path: Path, folder: Path) -> Parts:
    """Take a prediction apart, in this process but for the tasks."""
    import ray

    clock = time.process_time
    start = clock()
    reference = ray.put(checkpoint)
    model = Model.load(ray.get(reference), device="cpu", precision="32")
    weights = clock() - start
    with open_slide(path) as slide:
        predict_slide(slide, model, folder / "warm")
        start = clock()
        with locked(folder / "parts"):
            work = SlideFolder.claim(
                slide, model, folder / "parts", tile_px=1024, only_tissue=True, force=False
            )
        begin = clock() - start
        tiles = tiles_in(work.bands)
        start = clock()
        for band in work.bands:
            find_band(work, band, DEFAULT_PACE)
        tile = (clock() - start) / tiles
        writing, waiting = 0.0, []
        close = work.close

        def timed(*arguments: object) -> None:
            nonlocal writing
            before, on_disk = clock(), time.perf_counter()
            close(*arguments)  # type: ignore[arg-type]
            writing += clock() - before
            waiting.append(time.perf_counter() - on_disk)

        start = clock()
        with patch.object(work, "close", timed):
            settle_bands(work)
        settle = clock() - start - writing
        manifest = seconds_in_turns({"save": lambda: work.manifest.save(work.folder)}, rounds=20)["save"]
        start = clock()
        cells = sum(work.export().counts.values())
        export = clock() - start
    return Parts(
        tile=tile,
        begin=begin / tiles,
        settle=settle / cells,
        shard=statistics.median(waiting),
        manifest=manifest,
        export=export / cells,
        task=_task_seconds(),
        weights=weights,
        weight_bytes=sum(each.nbytes for each in checkpoint.weights.values()),
        read_bytes=path.stat().st_size / tiles,
    )


def _nothing() -> None: ...


def _task_seconds(count: int = 4_000) -> float:
    calls = iter(RemoteCall(number, _nothing, ()) for number in range(count))
    start = time.process_time()
    for _ in run_tasks(lambda: next(calls, None), Needs(), lambda: 8, cancel=False):
        pass
    return (time.process_time() - start) / count


def parts_table(parts: Parts) -> str:
    rows = [
        [
            "a tile: read, network, find, write",
            f"{1e3 * parts.tile:,.0f} ms ({parts.read_bytes / 1e6:.2f} MB of the slide)",
        ],
        ["open a slide, fingerprint, tissue", f"{1e3 * parts.begin:.1f} ms per tile of the slide"],
        ["settle", f"{1e6 * parts.settle:.1f} µs per cell"],
        ["write shard and manifest", f"{1e3 * parts.shard:.0f} ms per band"],
        ["of these, the manifest", f"{1e3 * parts.manifest:.1f} ms"],
        ["export: QuPath, maps, page", f"{1e6 * parts.export:.0f} µs per cell"],
        ["a Ray task", f"{1e3 * parts.task:.2f} ms of the caller"],
        [
            "weights from the object store, model ready",
            f"{1e3 * parts.weights:.0f} ms per process ({parts.weight_bytes / 1e6:.1f} MB)",
        ],
    ]
    return table(["part", "time"], rows)


def simulated_slide(key: str, work: list[object], path: Path, taken: frozenset[Path]) -> Begun:  # noqa: ARG001
    """Write what a tiny slide writes into its manifest, and nothing else."""
    folder = Path(key) / path.name
    if key:
        folder.mkdir(parents=True)
        file = File("cells/00000.parquet", "0" * 64)
        manifest = Manifest({"slide": {"fingerprint": path.name}}, WindowLayout(1024, 1024))
        manifest.save(folder)
        manifest = replace(manifest, bands=1, shards=(Shard(0, 10, file, file),))
        manifest.save(folder)
        replace(manifest, files=(file,) * 7, finished=True).save(folder)
    return Begun(folder, Outcome(path, PredictionSummary(path.name, folder, {"cell": 10}, 1.0, 0.5, tiles=1)))


def _resident_mb() -> float:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def many_slides(folder: Path) -> tuple[str, float]:
    """Send simulated slides through the scheduler; return the table and the seconds of a slide."""
    rows = []
    with patch.object(on_cluster, "begin_slide", simulated_slide):
        for count in SIMULATED:
            took = []
            for out in ("", str(folder / f"{count}")):
                slides = SlidesUnderWay([Path(f"{number:05d}.svs") for number in range(count)], (out, []))
                before, start, own = _resident_mb(), time.perf_counter(), time.process_time()
                for ended in run_tasks(slides.take, Needs(), lambda: 8, cancel=False):
                    if ended is not None:
                        slides.note(ended)
                took.append((time.perf_counter() - start, time.process_time() - own, _resident_mb() - before))
                assert len(slides.outcomes) == count
            (bare, own, memory), (written, *_) = took
            rows.append(
                [
                    f"{count:,}",
                    f"{bare:.1f}",
                    f"{1e3 * own / count:.2f}",
                    f"{written:.1f}",
                    f"{1024 * memory / count:.1f}",
                    f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
                ]
            )
    header = ["slides", "s", "CPU ms a slide", "s with manifests", "KB a slide", "peak of the caller, MB"]
    return table(header, rows), own / count


def scaling(parts: Parts, slide_seconds: float) -> str:
    """Return slides a day for more and more nodes like this machine, and what bounds them."""
    bands = round(REFERENCE_TILES**0.5)
    cores = len(os.sched_getaffinity(0))
    last = REFERENCE_CELLS * (parts.settle + parts.export) + bands * parts.shard
    on_nodes = (REFERENCE_TILES * (parts.tile + parts.begin) + last) / cores
    small = 12 * (parts.tile + parts.begin) + 15_000 * (parts.settle + parts.export) + parts.shard
    small /= cores
    rows = []
    for count in NODES:
        large_rate, small_rate = count / on_nodes, count / small
        rows.append(
            [
                str(count),
                f"{86_400 * large_rate:,.0f}",
                f"{86_400 * small_rate:,.0f}",
                f"{large_rate * (bands + 2) * parts.task:.1%}",
                f"{small_rate * slide_seconds:.1%}",
                f"{count * cores * parts.read_bytes / parts.tile / 1e6:,.0f} MB/s",
            ]
        )
    header = ["nodes", "large slides a day", "small slides a day", "caller, large", "caller, small", "read"]
    ends = {
        "the caller, large slides": on_nodes / ((bands + 2) * parts.task),
        "the caller, small slides": small / slide_seconds,
        "a file server with 1 GB/s": SERVER_BYTES_PER_SECOND * parts.tile / parts.read_bytes / cores,
    }
    where = "; ".join(f"{name} at {nodes:,.0f} nodes" for name, nodes in ends.items())
    return (
        f"{table(header, rows)}\n\nWhere it ends: {where}. A single large slide takes about "
        f"{last:.0f} s, however many nodes there are: settlement and export are one task. One node takes "
        f"{on_nodes:.0f} s for it."
    )


def write(name: str, text: str) -> None:
    """Put a table between its comments on the page."""
    print(f"{text}\n", flush=True)
    page = PAGE.read_text(encoding="utf-8")
    start, end = f"<!-- table {name} -->\n", "\n<!-- end -->"
    head, found, tail = page.partition(start)
    assert found, f"{PAGE} has no place for {name}"
    PAGE.write_text(f"{head}{start}\n{text}\n{tail[tail.index(end) :]}", encoding="utf-8")


def main() -> None:
    """Measure, and write the tables."""
    folder = Path(tempfile.mkdtemp(prefix="cluster"))
    try:
        slides = [folder / f"{number}.tif" for number in range(7)]
        tissue = Repeated.make()
        write_pyramid(replace(tissue, size=(SMALL_PX, SMALL_PX)), slides[0])
        write_pyramid(replace(tissue, size=(LARGE_PX, LARGE_PX)), slides[6])
        for path in slides[1:6]:
            shutil.copy(slides[0], path)
        with open_slide(slides[6]) as slide:
            checkpoint = untrained_checkpoint("detect", slide)
        with one_node() as cluster:
            text, slide_seconds = many_slides(folder)
            write("cluster-many", text)
            parts = measured(checkpoint, slides[6], folder)
            write("cluster-parts", parts_table(parts))
            write("cluster-scaling", scaling(parts, slide_seconds))
            write("cluster-overhead", overhead(cluster, checkpoint, slides, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
