"""How quick the studio answers: tiles, overlays over a million cells, marks.

Cells are random places on a plane of 100,000 × 100,000 pixels; tiles are those of a synthetic slide.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.overlay import overlay_png
from sparseshot.studio.slide_tiles import SlideTiles, levels_of

SIDE_PX, CELLS, MPP = 100_000, 1_000_000, 0.25


def main() -> None:
    """Print the slowest of 95 % of the answers."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, SIDE_PX, (CELLS, 2))
    found = FoundCells.of(Cells(xy, score=rng.uniform(0.1, 1, CELLS), mpp=MPP), mpp=MPP)
    rows = [
        ("overlay tile, level 0", _overlays(found, rng, 0)),
        ("overlay tile, level 4", _overlays(found, rng, 4)),
        ("overlay tile, level 9 (all cells)", _overlays(found, rng, 9)),
    ]
    tissue = SyntheticTissue(seed=1, size_px=(8192, 8192), mpp=MPP)
    tiles = SlideTiles()
    places = rng.integers(0, 32, (60, 2)).tolist()
    cold = [_seconds(partial(tiles.jpeg, "s", tissue, 0, *p)) for p in places]
    warm = [_seconds(partial(tiles.jpeg, "s", tissue, 0, *p)) for p in places]
    rows += [("slide tile, cold (painting included)", cold), ("slide tile, from cache", warm)]
    with tempfile.TemporaryDirectory() as folder:
        book = MarkBook(Path(folder, "marks.jsonl"))
        events = [{"key": str(i), "slide": "1", "add": [{"class": "cell", "at": [i, i]}]} for i in range(300)]
        marks = [_seconds(partial(book.record, [event])) for event in events]
    rows.append(("mark, until it is on disk", marks))
    assert levels_of(tissue) == 5
    print("| answer | median, ms | p95, ms |\n|---|---|---|")
    for name, seconds in rows:
        print(f"| {name} | {1e3 * np.median(seconds):.1f} | {1e3 * np.quantile(seconds, 0.95):.1f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory with {CELLS:,} cells: {peak:.0f} MB")


def _overlays(found: FoundCells, rng: np.random.Generator, z: int) -> list[float]:
    far = max(1, SIDE_PX // (256 * 2**z))
    overlay_png(found, z, 0, 0, threshold=0.5)  # compiles
    places = rng.integers(0, far, (40, 2)).tolist()
    return [_seconds(partial(overlay_png, found, z, *p, threshold=0.5)) for p in places]


def _seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
