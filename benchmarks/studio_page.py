"""The studio's page in Chromium: how soon a click is drawn, and how soon cells are found."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from selenium.webdriver.common.keys import Keys
from tests.studio.chromium import COMPONENT, StudioTab, chromium, running_studio, spread

from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.images import Box, open_slide
from sparseshot.models.inference import look_at
from sparseshot.prediction import Model

_WARM_UP_S = 20.0
_FLOOD_S = 60

_WATCH_CLICKS = """
window.clicks = [];
window.addEventListener('click', (event) => {
    if (!event.target.closest('.studio-canvas')) return;
    const canvas = document.querySelector('.leaflet-overlay-pane canvas');
    const box = canvas.getBoundingClientRect(), context = canvas.getContext('2d');
    const x = (event.clientX - box.left) * canvas.width / box.width;
    const y = (event.clientY - box.top) * canvas.height / box.height;
    const alpha = () => context.getImageData(x, y, 1, 1).data[3];
    const begun = event.timeStamp, record = {at: begun, drawn: null, saved: null};
    if (alpha() > 90) return;  // something is drawn there already
    window.clicks.push(record);
    const look = () => {
        const now = performance.now() - begun, seen = alpha();
        if (record.drawn === null && seen >= 100) record.drawn = now;
        if (seen >= 250) record.saved = now;
        else if (now < 10000) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}, true);
window.shown = (run) => [...document.querySelectorAll('img.leaflet-tile')].some(
    (tile) => tile.src.includes(`/found/${run}/`) && tile.complete && tile.naturalWidth);
window.waitFor = (run) => { const timer = setInterval(() => {
    if (window.shown(run)) { window[run] = performance.now(); clearInterval(timer); }
}, 20); };
"""


def page_rows() -> Iterator[tuple[str, str, str]]:
    """Measure clicks, a flood of them, and two trainings on each slide."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for slide, view, places in _slides(folder):
            yield from _rounds(slide, folder / f"{slide.stem}.studio", view, places)
        yield from _flood(folder / "synthetic.tif", folder / "flood")


def _slides(folder: Path) -> list[tuple[Path, tuple[float, float], list[tuple[float, float]]]]:
    """Return slides, the middle of the view, and places of cells around it."""
    tissue = SyntheticTissue(seed=5, size_px=(3072, 3072), mpp=0.5, tissue_fraction=1.0)
    write_pyramid(tissue, folder / "synthetic.tif")
    xy = tissue.cells().xy
    found = [(folder / "synthetic.tif", (1536.0, 1536.0), xy)]
    real = Path(os.environ.get("SPARSESHOT_DATA", "../shared/data"), "slides", "CMU-1-Small-Region.svs")
    if real.is_file():
        with open_slide(real) as slide:  # the surest of what the starter finds
            model = Model.load("starter", device="cpu")
            frame, at = model.frame(slide), model.threshold
            box = Box(*(round(each) for each in frame.grid.from_level0((200, 1200, 1160, 1920))))
            cells = look_at(model.network, model.task, slide, frame, threshold=at, box=box).cells
        assert cells.score is not None
        found.append((real, (680.0, 1560.0), cells.xy[np.argsort(-cells.score)][:150]))
    rng = np.random.default_rng(0)
    return [
        (path, middle, spread(rng.permutation(_in_view(xy, middle)), 70, 34)) for path, middle, xy in found
    ]


def _in_view(xy: "np.ndarray[Any, Any]", middle: tuple[float, float]) -> "np.ndarray[Any, Any]":
    return xy[(np.abs(xy - middle) < (260, 200)).all(axis=1)]


def _rounds(
    slide: Path, project: Path, view: tuple[float, float], places: list[tuple[float, float]]
) -> list[tuple[str, str, str]]:
    first, during, wrong = places[:20], places[20:-5], places[-5:]
    with chromium() as driver, ExitStack() as stack:
        begun = time.monotonic()
        address, _ = stack.enter_context(running_studio(slide, "--project", project))
        tab = StudioTab(driver, address)
        tab.open(*view, 0)
        tab.until("cells", tab.found_in_view)
        opened = time.monotonic() - begun
        time.sleep(_WARM_UP_S)  # somebody looks around
        tab.script(_WATCH_CLICKS)
        for place in first:
            tab.click(*place)
        idle = _clicks(tab)
        tab.script("window.waitFor('r1')")
        spent = cpu_seconds(project)
        tab.press("t")
        begun = float(tab.script("return window.clicks.at(-1).at"))
        known = len(idle)
        for place in during:
            tab.click(*place)
            time.sleep(0.1)
            if tab.script("return window.r1 || 0"):
                break
        busy = _clicks(tab)[known:]
        tab.until("found cells", lambda: tab.script("return window.r1 || 0"), 200)
        twenty = (float(tab.script("return window.r1")) - begun) / 1e3
        costs = [cpu_seconds(project) - spent]
        tab.until("end", lambda: "run 1: finished" in tab.text(), 200)
        tab.press("x")
        for place in wrong:
            tab.click(*place)
        tab.script("window.corrected = performance.now(); window.waitFor('r2')")
        spent = cpu_seconds(project)
        tab.press("t")
        tab.until("new result", lambda: tab.script("return window.r2 || 0"), 200)
        again = float(tab.script("return window.r2 - window.corrected")) / 1e3
        costs.append(cpu_seconds(project) - spent)
        about = [f"{_steps(project, run)} steps, {cost:.1f} s of a core" for run, cost in enumerate(costs, 1)]
        tab.until("end", lambda: "run 2: finished" in tab.text(), 200)
        kinds = _kinds(tab, first[:12])
    where = slide.name
    return [
        (f"{where}: command to first cells in view", f"{opened:.1f} s", "6 s"),
        (f"{where}: click until it is drawn", _p95(idle, "drawn"), "100 ms"),
        (f"{where}: click until it is drawn, while training", _p95(busy, "drawn"), "100 ms"),
        (f"{where}: click until it is saved, while training", _p95(busy, "saved"), ""),
        (f"{where}: 20th click to found cells in view", f"{twenty:.1f} s ({about[0]})", "20 s"),
        (f"{where}: correction to new result", f"{again:.1f} s ({about[1]})", "15 s"),
        (f"{where}: click on a kind to new kinds in view", f"{max(kinds):.2f} s (of {len(kinds)})", "1 s"),
    ]


def _kinds(tab: StudioTab, places: list[tuple[float, float]]) -> list[float]:
    """Click cells of two classes; return the time from each click to new kinds on the map."""
    painted, times = f"return {COMPONENT}.painted", []
    for name, own in (("a", places[::2]), ("b", places[1::2])):
        tab.press("c")
        tab.press(name + Keys.ENTER)
        tab.until(name, lambda: tab.script(f"return {COMPONENT}.chosen") == name)  # noqa: B023
        for place in own:
            before, begun = tab.script(painted), time.monotonic()
            tab.click(*place)
            tab.until("kinds", lambda: tab.script(painted) != before)  # noqa: B023
            times.append(time.monotonic() - begun)
    return times


def _clicks(tab: StudioTab) -> list[dict[str, float]]:
    tab.until(
        "all clicks", lambda: tab.script("return window.clicks.every((each) => each.saved !== null)"), 20
    )
    found: list[dict[str, float]] = tab.script("return window.clicks")
    return found


def _p95(clicks: list[dict[str, float]], what: str) -> str:
    if not clicks:
        return "none were made"
    times = [each[what] for each in clicks]
    return f"{np.quantile(times, 0.95):.0f} ms (p95 of {len(times)})"


def cpu_seconds(project: Path) -> float:
    """Return the time that the process which trains for a project has computed."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().decode().split("\0")
            if "sparseshot.studio.worker" in words and str(project) in words:
                user, system = (path / "stat").read_text().rpartition(")")[2].split()[11:13]
                return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _steps(project: Path, run: int) -> int:
    from sparseshot.files import read_json

    return int(read_json(project / "runs" / f"{run:04d}" / "model" / "recipe.json")["settings"]["steps"])


def _flood(slide: Path, project: Path) -> list[tuple[str, str, str]]:
    """Click fifty times a second for a minute."""
    from sparseshot.studio.marks import MarkBook

    with (
        running_studio(slide, "--project", project) as (address, _),
        chromium(width=1700, height=1000) as driver,
    ):
        tab = StudioTab(driver, address)
        tab.open(1536, 1536, 2)
        tab.script(FLOOD % (50 * _FLOOD_S))
        tab.until("all clicks", lambda: tab.script("return window.flooded || 0"), 3 * _FLOOD_S)
        took = float(tab.script("return window.flooded")) / 1e3
        book = MarkBook(project / "marks.jsonl")
        made = 50 * _FLOOD_S
        begun = time.monotonic()
        tab.until("all marks", lambda: len(book.items("1")) == made and tab.marks("cell") == made, 60)
        late = time.monotonic() - begun
    kept = f"{len(book.items('1')):,}, the last {late:.1f} s later"
    return [(f"kept of {made:,} clicks in {took:.0f} s", kept, f"{made:,}")]


FLOOD = """
const canvas = document.querySelector('.studio-canvas'), box = canvas.getBoundingClientRect();
const begun = performance.now(), total = %d;
let made = 0;
const timer = setInterval(() => {
    const due = Math.min(total, Math.floor((performance.now() - begun) / 20));
    for (; made < due; made++) {
        const x = box.left + 100 + (made %% 75) * 15, y = box.top + 40 + Math.floor(made / 75) * 15;
        const at = {clientX: x, clientY: y, bubbles: true, button: 0};
        for (const type of ['mousedown', 'mouseup', 'click']) canvas.dispatchEvent(new MouseEvent(type, at));
    }
    if (made === total) { clearInterval(timer); window.flooded = performance.now() - begun; }
}, 10);
"""
"""Clicks on places that are too far apart to be one cell."""
