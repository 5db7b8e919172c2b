"""A page on which somebody marks while the studio is killed again and again, and trains all the while."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.studio.chromium import StudioTab, chromium, free_port, running_studio
from tests.studio.small_project import MPP, small_slide

from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project_runs import RUN, RUNS, STOP
from sparseshot.training.logs import read_log

_CLICKS = """
if (window.clicking === undefined) {
    const send = window.fetch;
    window.fetch = async (address, options) => {
        const answer = await send(address, options);
        if (answer.ok && options?.method === 'POST' && String(address).includes('/marks')) {
            const keys = JSON.parse(sessionStorage.getItem('confirmed') || '[]');
            keys.push(...JSON.parse(options.body).map((change) => change.key));
            sessionStorage.setItem('confirmed', JSON.stringify(keys));  // survives a reload
        }
        return answer;
    };
    const canvas = document.querySelector('.studio-canvas'), box = canvas.getBoundingClientRect();
    window.clicking = setInterval(() => {
        const place = window.made = Number(sessionStorage.getItem('made') || 0);
        sessionStorage.setItem('made', place + 1);
        const x = box.left + 80 + (place % 50) * 15.5, y = box.top + 60 + Math.floor(place / 50) * 15.5;
        const at = {clientX: x, clientY: y, bubbles: true, button: 0, altKey: true};  // not a cell
        for (const type of ['mousedown', 'mouseup', 'click']) canvas.dispatchEvent(new MouseEvent(type, at));
    }, 40);
}
"""


class KillReport(NamedTuple):
    """What came of it.

    Attributes:
        confirmed: keys of the changes that the page saw confirmed.
        kept: keys of those in the journal.
        made: number of clicks.
        steps: last training step on the log before and after each kill.
    """

    confirmed: set[str]
    kept: set[str]
    made: int
    steps: list[tuple[int, int]]


def kill_again_and_again(folder: Path, *, kills: int, seed: int) -> KillReport:
    """Kill the studio at random moments while marks are made and a training is under way."""
    slide, centres = small_slide(folder)
    project = folder / "project"
    moments = random.Random(seed)
    marks = [{"class": "cell", "at": [float(x), float(y)]} for x, y in centres[::12]]
    steps: list[tuple[int, int]] = []
    confirmed, port = set[str](), free_port()
    with chromium() as driver:
        for turn in range(kills + 1):
            arguments = (slide, "--project", project, "--mpp", MPP, "--steps", 100_000, "--port", port)
            with running_studio(*arguments) as (address, process):
                tab = StudioTab(driver, address)
                _begin(tab, project, marks if turn == 0 else None)
                if turn == kills:
                    made = _end(tab, project)
                    break
                before = last_step(project)
                time.sleep(moments.uniform(0.2, 3))
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                confirmed |= set(tab.script("return JSON.parse(sessionStorage.getItem('confirmed') || '[]')"))
            goes_on(project, before)
            steps.append((before, last_step(project)))
    kept = {item["id"].partition(":")[0] for item in MarkBook(project / "marks.jsonl").items("1")}
    return KillReport(confirmed, kept - {"before"}, made, steps)


def _begin(tab: StudioTab, project: Path, marks: list[dict[str, Any]] | None) -> None:
    """Click again and again; with marks, train on them first."""
    if marks is not None:
        MarkBook(project / "marks.jsonl").record([{"key": "before", "slide": "1", "add": marks}])
        tab.open(500, 350, 0)
        tab.until("marks", lambda: tab.marks("cell") == len(marks))
        tab.press("t")
        tab.until("training", lambda: last_step(project) > 0)
    else:
        tab.until("page that loads itself anew", lambda: tab.script("return window.clicking === undefined"))
    tab.until("page", lambda: tab.script("return document.querySelector('.leaflet-tile-loaded')"))
    tab.script(_CLICKS)


def _end(tab: StudioTab, project: Path) -> int:
    """Stop clicking and training when all marks are saved; return how many there were."""
    time.sleep(1)
    made = int(tab.script("clearInterval(window.clicking); return window.made")) + 1
    tab.until("all marks saved", lambda: not tab.unsaved(), 60)
    (project / RUNS / "0001" / STOP).touch()
    tab.until("end of the training", lambda: "stopped" in tab.text(), 60)
    return made


def last_step(project: Path) -> int:
    """Return the last step on the log of the training."""
    log = read_log(project / RUNS / "0001" / RUN / "log.csv")
    return int(log[-1]["step"]) if log else 0


def goes_on(project: Path, step: int) -> None:
    """Wait until the training is beyond a step."""
    end = time.monotonic() + 120
    while last_step(project) <= step:
        assert time.monotonic() < end, f"the training stays at step {step}"
        time.sleep(0.1)
