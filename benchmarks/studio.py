"""How quick the studio is, measured from outside: ``python -m benchmarks studio``.

Tiles, overlays and marks are asked for over HTTP from a studio in a process of its own, with a slide of
100,000 × 100,000 pixels and a million found cells. Clicks and the time from marks to found cells are measured
in a page in Chromium. ``python -m benchmarks.studio --write`` also writes the table into docs/studio.md.
"""

import argparse
import http.client
import json
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from tests.studio.chromium import MISSING, running_studio

from benchmarks.studio_page import page_rows
from benchmarks.studio_slide import TILE_PX, write_repeated_slide, write_result
from sparseshot.cells import read_cells

Ask = Callable[[str, str, bytes | None], bytes]
Row = tuple[str, str, str]
"""What was measured, the figure, and what is wanted."""

SIDE_PX, CELLS = 100_000, 1_000_000
_PAGE = Path(__file__).parents[1] / "docs" / "studio.md"
_BEGIN, _END = "<!-- python -m benchmarks.studio --write -->", "<!-- end -->"


def main(write: bool = False) -> None:
    """Print the table; write it into the page about the studio if asked to."""
    before = busy_share()
    lines = ["| measured | result | wanted |", "|---|---|---|"]
    print("\n".join(lines))
    for row in chain(http_rows(), [] if MISSING else page_rows()):
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    if MISSING:
        print("\nchromium and chromedriver are not installed; clicks and trainings are left out")
    others = f"Other processes used {before:.0%} of the machine before, {busy_share():.0%} after."
    print(f"\n{others}")
    if write:
        text = _PAGE.read_text()
        head, rest = text.split(_BEGIN)
        table = "\n".join([_BEGIN, "", *lines, "", others, "", ""])
        _PAGE.write_text(head + table + _END + rest.split(_END)[1])


def http_rows() -> list[Row]:
    """Measure answers over HTTP, and the memory of the server."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_repeated_slide(folder / "large.tif", SIDE_PX)
        write_result(folder / "found", folder / "large.tif", CELLS, SIDE_PX)
        with (
            running_studio(folder / "large.tif", folder / "found") as (address, process),
            connection(address) as ask,
        ):
            ask("GET", "/", None)
            first = seconds(lambda: ask("GET", "/slides/1/found/f0/9/0/0.png", None))
            places = [
                (z, *rng.integers(0, max(1, SIDE_PX >> z + 8), 2).tolist()) for z in [0, 1, 2, 3, 5] * 60
            ]
            tiles = [f"/slides/1/tiles/{z}/{x}/{y}.jpg" for z, x, y in dict.fromkeys(places)]
            cold = [seconds(lambda: ask("GET", tile, None)) for tile in tiles]  # noqa: B023
            warm = [seconds(lambda: ask("GET", tile, None)) for tile in tiles]  # noqa: B023
            overlays = [_overlays(ask, rng, z) for z in (0, 4, 9)]
            marks = [seconds(lambda: ask("POST", "/slides/1/marks", _mark(rng))) for _ in range(300)]
            kinds = [_new_kinds(ask, folder / "found")]
            memory = peak_mb(process.pid)
        write_result(folder / "fewer", folder / "large.tif", CELLS // 10, SIDE_PX)
        with (
            running_studio(folder / "large.tif", folder / "fewer", "--project", folder / "p") as (address, _),
            connection(address) as ask,
        ):
            kinds.append(_new_kinds(ask, folder / "fewer"))
    wanted = "100 ms"
    return [
        ("slide tile, cold", p95(cold), wanted),
        ("slide tile, from the cache", p95(warm), "10 ms"),
        (f"overlay tile, {CELLS:,} cells, 256 px of the slide", p95(overlays[0]), wanted),
        (f"overlay tile, {CELLS:,} cells, 4,096 px of the slide", p95(overlays[1]), wanted),
        (f"overlay tile, {CELLS:,} cells, the whole slide", p95(overlays[2]), wanted),
        ("the first of them, which reads all cells", f"{1e3 * first:.0f} ms", ""),
        ("mark, until it is on disk and confirmed", p95(marks), wanted),
        (f"click on a kind to new kinds of {CELLS // 10:,} cells", p95(kinds[1]), "1,000 ms"),
        (f"click on a kind to new kinds of {CELLS:,} cells", p95(kinds[0]), "3,000 ms"),
        (f"memory of the server, {SIDE_PX:,}² slide, {CELLS:,} cells", f"{memory:.0f} MB", "1,200 MB"),
    ]


def _overlays(ask: Ask, rng: np.random.Generator, z: int) -> list[float]:
    far = max(1, SIDE_PX // (TILE_PX << z))
    times = []
    for i in range(60):
        x, y = rng.integers(0, far, 2).tolist()
        path = f"/slides/1/found/f0/{z}/{x}/{y}.png?threshold={0.2 + i / 100:.2f}"
        times.append(seconds(lambda: ask("GET", path, None)))  # noqa: B023
    return times


def _mark(rng: np.random.Generator, name: str = "cell", place: list[float] | None = None) -> bytes:
    at = place or rng.uniform(0, SIDE_PX, 2).round(1).tolist()
    return json.dumps([{"key": secrets.token_hex(10), "add": [{"class": name, "at": at}]}]).encode()


def _new_kinds(ask: Ask, found: Path) -> list[float]:
    """Click found cells of three classes; return the time of each click until kinds and a tile are there."""
    rng, times = np.random.default_rng(1), []
    xy = read_cells(next(found.glob("cells/*.parquet"))).xy[:60].round(1).tolist()
    for number, place in enumerate(xy):
        name = ("Lymphocyte", "Tumour", "Stroma")[number % 3]
        x, y = (int(each // (TILE_PX << 2)) for each in place)
        begun = time.perf_counter()
        ask("POST", "/slides/1/marks", _mark(rng, name, place))
        ask(
            "GET",
            f"/slides/1/found/f0/cells?area={place[0]},{place[1]},{place[0] + 4e3},{place[1] + 2e3}",
            None,
        )
        ask("GET", f"/slides/1/found/f0/2/{x}/{y}.png?v={number}", None)
        times.append(time.perf_counter() - begun)
    return times


@contextmanager
def connection(address: str) -> Iterator[Ask]:
    """Keep a connection to the studio, as a browser does; yield a function that asks it."""
    opened = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)

    def ask(method: str, path: str, body: bytes | None) -> bytes:
        opened.request(method, path, body, {"Content-Type": "application/json"})
        answer = opened.getresponse()
        content = answer.read()
        assert answer.status == 200, (path, content)
        return content

    try:
        yield ask
    finally:
        opened.close()


def seconds(function: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def p95(times: list[float]) -> str:
    """Return the time that 95 % of the answers keep, and their number."""
    return f"{1e3 * float(np.quantile(times, 0.95)):.1f} ms (p95 of {len(times)})"


def peak_mb(process: int) -> float:
    """Return the largest memory that a process has had."""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[0]) / 1024


def busy_share() -> float:
    """Return the share of all cores that is in use during a second in which this process rests."""

    def ticks() -> tuple[int, int]:
        user, nice, system, idle, wait, *_ = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
        )
        return user + nice + system, user + nice + system + idle + wait

    before = ticks()
    time.sleep(1)
    after = ticks()
    return (after[0] - before[0]) / max(1, after[1] - before[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studio")
    parser.add_argument("--write", action="store_true", help="write the table into docs/studio.md")
    main(parser.parse_args().write)
