"""Timing in turns, so that what disturbs the machine disturbs every candidate alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def seconds_in_turns(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each candidate; every round runs each once, after one unmeasured round.

    For work on one thread, the clock ``time.process_time`` leaves out what other processes take.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, run in candidates.items():
            start = clock()
            run()
            if turn:
                times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table; floats with three figures."""
    cells = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    for row in [list(header), ["-" * w for w in widths], *cells]:
        print("| " + " | ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)) + " |")
