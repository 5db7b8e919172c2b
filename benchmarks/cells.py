"""Files of cells against geopandas, in time and memory, and how time grows with the number of cells."""

import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import geopandas
import numpy as np
import shapely

from benchmarks.timing import print_table
from sparseshot.cells import Cells, nested_subsets, read_cells

DETECTIONS = 200_000
VERTICES = 24
SIZES = (10**5, 10**6)
FRACTIONS = [k / 10 for k in range(1, 11)]


def detections(count: int) -> Cells:
    """Return outlines of 24 vertices with ids, classes and scores, as a detector writes them."""
    rng = np.random.default_rng(0)
    angle = np.linspace(0, 2 * np.pi, VERTICES, endpoint=False)
    around = np.column_stack([np.cos(angle), np.sin(angle)])
    xy = rng.uniform(20, 100_000, (count, 2))
    rings = xy[:, None] + rng.uniform(8, 14, (count, VERTICES, 1)) * around
    rings = np.concatenate([rings, rings[:, :1]], axis=1).round(2)
    return Cells(
        xy,
        classes=("Tumor", "Immune cells", "Stroma"),
        label=rng.integers(0, 3, count),
        score=rng.uniform(0, 1, count),
        outline=shapely.polygons(rings),
        id=[f"{i:08x}-0000-4000-8000-{i:012x}" for i in range(count)],
        colors=((200, 0, 0), (160, 90, 160), (150, 200, 150)),
    )


def points(count: int) -> Cells:
    rng = np.random.default_rng(0)
    return Cells(
        rng.uniform(0, 100_000, (count, 2)),
        classes=("a", "b", "c"),
        label=rng.integers(0, 3, count),
        score=rng.uniform(0, 1, count),
        id=np.arange(count),
        mpp=0.25,
    )


def seconds(run: Callable[[], object]) -> float:
    """Return processor seconds, which depend little on what else the machine does."""
    start = time.process_time()
    run()
    return time.process_time() - start


def resident_mb(field: str) -> float:
    """Return VmRSS, the memory held now, or VmHWM, the most held since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1000
    raise ValueError(field)


def peak_mb(run: Callable[[], object]) -> tuple[float, float]:
    """Return by how much the memory held rises while ``run`` works, and how much its result holds."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    before = resident_mb("VmRSS")
    result = run()
    peak = resident_mb("VmHWM") - before
    gc.collect()
    held = resident_mb("VmRSS") - before
    del result
    return peak, held


def against_geopandas(folder: Path) -> None:
    path = folder / "cells.geojson"
    detections(1000).write(path)
    read_cells(path)  # compiled now, not while the clock runs
    detections(DETECTIONS).write(path)
    print(f"{DETECTIONS:,} outlines of {VERTICES} vertices, {path.stat().st_size / 1e6:.0f} MB of GeoJSON\n")
    cells, frame = read_cells(path), geopandas.read_file(path)
    ours, theirs = folder / "ours.geojson", folder / "theirs.geojson"
    work = {
        "read": (lambda: read_cells(path), lambda: geopandas.read_file(path)),
        "read, Arrow": (lambda: read_cells(path), lambda: geopandas.read_file(path, use_arrow=True)),
        "write": (lambda: cells.write(ours), lambda: frame.to_file(theirs, driver="GeoJSON")),
    }
    rows = []
    for what, (mine, his) in work.items():
        mine_s, his_s = seconds(mine), seconds(his)
        rows.append([what, mine_s, his_s, his_s / mine_s])
    print_table(["", "sparseshot, s", "geopandas, s", "times faster"], rows)


def million(folder: Path) -> None:
    """Read a million outlines, in a process in which no memory lies free from earlier work."""
    detections(1000).write(folder / "few.geojson")
    read_cells(folder / "few.geojson")  # compiled now, not while the clock runs
    path, tables = folder / "million.geojson", []
    spent: list[float] = []
    peak, _ = peak_mb(lambda: spent.append(seconds(lambda: tables.append(read_cells(path)))))
    table = tables[0].nbytes / 1e6
    header = ["outlines", "GeoJSON, MB", "processor s", "peak, MB", "of the table's own size (≤ 3)"]
    print_table(header, [["1,000,000", path.stat().st_size / 1e6, spent[0], peak, peak / table]])


def memory(folder: Path) -> None:
    if not sys.platform.startswith("linux"):
        return
    path = folder / "cells.geojson"
    detections(1000).write(folder / "few.geojson")
    read_cells(folder / "few.geojson")  # load the code before the memory is looked at
    read_peak, held = peak_mb(lambda: read_cells(path))
    cells = read_cells(path)
    table = cells.nbytes / 1e6
    write_peak, _ = peak_mb(lambda: cells.write(folder / "ours.geojson"))
    print_table(
        ["", "peak, MB", "of the table's own size"],
        [
            ["the table (nbytes)", table, 1.0],
            ["the table (memory held after reading)", held, held / table],
            ["reading, the table included", read_peak, read_peak / table],
            ["writing, beside the table", write_peak, write_peak / table],
        ],
    )


def growth(folder: Path) -> None:
    """Time the same work on 10⁵ and 10⁶ points; 1.0 in the last column is linear."""
    parquet, geojson = folder / "points.parquet", folder / "points.geojson"
    nested_subsets(points(1000), FRACTIONS, seed=0)
    times: dict[str, list[float]] = {}
    for size in SIZES:
        cells = points(size)
        for what, run in {
            "GeoParquet, write": lambda: cells.write(parquet),  # noqa: B023  run at once
            "GeoParquet, read": lambda: read_cells(parquet),
            "GeoJSON, write": lambda: cells.write(geojson),  # noqa: B023
            "GeoJSON, read": lambda: read_cells(geojson),
            "ten nested subsets": lambda: nested_subsets(cells, FRACTIONS, seed=0),  # noqa: B023
        }.items():
            times.setdefault(what, []).append(min(seconds(run) for _ in range(3)))
        print(f"{size:,} points: {cells.nbytes / 1e6:.0f} MB in memory", flush=True)
    print()
    header = ["seconds for", *(f"{size:,}" for size in SIZES), "per row, 10⁶ : 10⁵"]
    rows = [[what, *t, t[1] / t[0] / 10] for what, t in times.items()]
    print_table(header, rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        against_geopandas(Path(folder))
        print()
        for table in (memory, million):
            if table is million:
                detections(10**6).write(Path(folder) / "million.geojson")
            fresh = multiprocessing.get_context("spawn").Process(target=table, args=(Path(folder),))
            fresh.start()  # a process in which no memory lies free from earlier work
            fresh.join()
            print()
        growth(Path(folder))
