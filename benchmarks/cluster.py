"""A Ray cluster on this machine: its overhead.

Writes its table into ``docs/how-to/cluster.md``. The cluster has one node with the cores of this machine.
"""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.prediction import Repeated, untrained_checkpoint
from sparseshot.datasets.synthetic import write_pyramid
from sparseshot.images import open_slide
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.pages import table
from sparseshot.prediction.slides import Outcome, PredictRequest, predict_slides
from sparseshot.work.folder import STATE
from sparseshot.work.ray_cluster import RayCluster

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "cluster.md"
SMALL_PX, LARGE_PX = 4096, 8192


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
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != STATE)
    for path in sorted(files):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def overhead(cluster: RayCluster, checkpoint: Checkpoint, slides: list[Path], folder: Path) -> str:
    """Time the same slides with and without Ray, on the same cores, after everything is warm."""
    checkpoint.save(folder / "model.pt")
    request = PredictRequest(str(folder / "model.pt"), device="cpu", precision="32")

    def alone(paths: list[Path], out: Path) -> list[Outcome]:
        return predict_slides(paths, request, out)

    def with_ray(paths: list[Path], out: Path) -> list[Outcome]:
        return predict_slides(paths, request, out, cluster=cluster)

    rows = []
    for name, paths in (("six small slides", slides[:6]), ("one large slide", slides[6:])):
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


def write(name: str, text: str) -> None:
    """Put a table between its comments on the page."""
    print(f"{text}\n", flush=True)
    page = PAGE.read_text(encoding="utf-8")
    start, end = f"<!-- table {name} -->\n", "\n<!-- end -->"
    head, found, tail = page.partition(start)
    assert found, f"{PAGE} has no place for {name}"
    PAGE.write_text(f"{head}{start}\n{text}\n{tail[tail.index(end) :]}", encoding="utf-8")


def main() -> None:
    """Measure, and write the table."""
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
            write("cluster-overhead", overhead(cluster, checkpoint, slides, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
