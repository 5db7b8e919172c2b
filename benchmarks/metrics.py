"""Matching and suppression: against SciPy's KD-trees, growth with the number of cells, and peak memory."""

import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.cells.suppression import settle
from sparseshot.metrics import match_points, scored_hits

Points = NDArray[np.float64]

SPACING_PX = 20.0
"""Square root of the area of a cell: nuclei at 40x that nearly touch."""
RADIUS_PX = 12.0
"""3 µm at 40x."""
MILLION = 10**6
SIZES = (10**5, 10**6, 10**7)


def scattered(n: int, seed: int = 0) -> Points:
    """Cells anywhere."""
    return np.random.default_rng(seed).random((n, 2)) * math.sqrt(n) * SPACING_PX


def clustered(n: int) -> Points:
    """Cells in nests of about a hundred, on a slide that is mostly glass."""
    random = np.random.default_rng(0)
    nests = random.random((n // 100, 2)) * math.sqrt(n) * 4 * SPACING_PX
    return nests[random.integers(len(nests), size=n)] + random.normal(0, 4 * SPACING_PX, (n, 2))


def found_of(truth: Points) -> Points:
    """Nine in ten cells found, a little off; one in ten found where there is none."""
    random = np.random.default_rng(1)
    found = truth + random.normal(0, 3.0, truth.shape)
    made_up = random.random(len(found)) < 0.1
    found[made_up] = random.permutation(truth)[made_up] + SPACING_PX
    return found[random.permutation(len(found))]


def nearest_by_trees(truth: Points, found: Points, *, radius: float) -> object:
    """Build both trees and ask each for the nearest of the other: what any matching by trees begins with."""
    truth_tree, found_tree = cKDTree(truth), cKDTree(found)
    return (
        truth_tree.query(found, distance_upper_bound=radius),
        found_tree.query(truth, distance_upper_bound=radius),
    )


def one_query_by_trees(truth: Points, found: Points, *, radius: float) -> object:
    """Build both trees and ask one of them only."""
    cKDTree(found)
    return cKDTree(truth).query(found, distance_upper_bound=radius)


def matching_ratios() -> None:
    rows = []
    for name, truth, radius in (
        ("scattered", scattered(MILLION), RADIUS_PX),
        ("scattered, twice the radius", scattered(MILLION), 2 * RADIUS_PX),
        ("clustered", clustered(MILLION), RADIUS_PX),
    ):
        found = found_of(truth)
        seconds = seconds_in_turns(
            {
                "match": partial(match_points, truth, found, radius=radius),
                "one": partial(one_query_by_trees, truth, found, radius=radius),
                "both": partial(nearest_by_trees, truth, found, radius=radius),
                "gains": partial(scored_hits, found, truth, np.linspace(0, 1, MILLION), radius=radius),
            },
            rounds=3,
        )
        ratios = [seconds["match"] / seconds["one"], seconds["match"] / seconds["both"]]
        rows.append([name, seconds["match"], *ratios, seconds["gains"]])
    print_table(
        [
            "1,000,000 against 1,000,000",
            "match_points, s",
            "× building two KD-trees, one query (≤ 5)",
            "× building two, both queries (≤ 5)",
            "scored_hits, s",
        ],
        rows,
    )


def suppression_ratios() -> None:
    rows = []
    for name, xy, radius in (
        ("scattered", scattered(MILLION), RADIUS_PX),
        ("scattered, thrice the radius", scattered(MILLION), 3 * RADIUS_PX),
        ("clustered", clustered(MILLION), RADIUS_PX),
    ):
        score = np.random.default_rng(2).random(MILLION)
        tree = cKDTree(xy)
        seconds = seconds_in_turns(
            {
                "suppress": partial(settle, xy, score, radius=radius, edge_y=np.inf),
                "pairs": partial(tree.query_pairs, radius, output_type="ndarray"),
            },
            rounds=5,
        )
        rows.append([name, seconds["suppress"], seconds["pairs"], seconds["suppress"] / seconds["pairs"]])
    print_table(["1,000,000 points", "suppress, s", "query_pairs, s", "ratio (≤ 3)"], rows)


def cpu_seconds(run: Callable[[], object], *, rounds: int) -> float:
    """Return the least processor seconds of some runs, since sizes are not run in turns."""
    run()
    least = math.inf
    for _ in range(rounds):
        start = time.process_time()
        run()
        least = min(least, time.process_time() - start)
    return least


def growth() -> None:
    runs: dict[str, Callable[[Points, Points], object]] = {
        "match_points": lambda truth, found: match_points(truth, found, radius=RADIUS_PX),
        "suppress": lambda truth, found: settle(truth, found[:, 0], radius=RADIUS_PX, edge_y=np.inf),
    }
    rows = []
    for name, run in runs.items():
        for kind, make in {"scattered": scattered, "clustered": clustered}.items():
            seconds = []
            for n in SIZES:
                truth = make(n)
                run_once = partial(run, truth, found_of(truth))
                seconds.append(cpu_seconds(run_once, rounds=max(3, min(20, 10**7 // n))))
            exponent = math.log(seconds[-1] / seconds[0]) / math.log(SIZES[-1] / SIZES[0])
            rows.append([f"{name}, {kind}", *seconds, exponent])
    print_table(["processor s", *(f"{n:,}" for n in SIZES), "grows as n to the (≤ 1.1)"], rows)


def peak_gib(name: str, n: int) -> float:
    truth = scattered(n)
    if name == "match_points":
        match_points(truth, found_of(truth), radius=RADIUS_PX)
    else:
        settle(truth, truth[:, 0] % 1, radius=RADIUS_PX, edge_y=np.inf)
    # Not getrusage: its peak is inherited from the process that started this one.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak[1]) / 2**20 if peak else math.nan


def memory() -> None:
    rows = []
    for name in ("match_points", "suppress"):
        for n in SIZES[1:]:
            # A process of its own for each, because a peak never falls again.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                rows.append([name, f"{n:,}", process.submit(peak_gib, name, n).result()])
    print_table(["whole process, with its points", "n", "peak RSS, GiB (≤ 4 at 1,000,000)"], rows)


def main() -> None:
    for table in (matching_ratios, suppression_ratios, growth, memory):
        table()
        print(flush=True)
