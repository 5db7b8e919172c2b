"""The page in a real browser, as a person uses it."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.studio.chromium import MISSING, StudioTab, chromium, running_studio, spread
from tests.studio.small_project import MPP, small_slide

from sparseshot.cells import read_cells
from sparseshot.cli import main
from sparseshot.studio.marks import MarkBook

pytestmark = [
    pytest.mark.skipif(MISSING, reason="chromium and chromedriver are not installed (Debian's packages)"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]


def test_from_twenty_clicks_to_an_export(tmp_path: Path) -> None:
    slide, centres = small_slide(tmp_path)
    project = tmp_path / "project"
    near = centres[(np.abs(centres - (500, 350)) < (280, 300)).all(axis=1)]
    clicks = spread(near, 20, 30)
    with (
        running_studio(slide, "--project", project, "--mpp", MPP, "--steps", 20) as (address, _),
        chromium() as driver,
    ):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        assert "Click some cells" in tab.text()
        for place in clicks:
            tab.click(*place)
        tab.until("20 marks", lambda: tab.marks("cell") == 20)
        tab.press("z")
        tab.until("undo", lambda: tab.marks("cell") == 19)
        tab.press("y")
        tab.until("redo", lambda: tab.marks("cell") == 20)
        marks = MarkBook(project / "marks.jsonl").cells("1")
        assert np.abs(marks.xy - np.array(clicks)).max() < 1  # a click marks the place under the pointer
        tab.press("x")
        tab.click(380, 120)
        tab.until("not a cell", lambda: tab.marks("not a cell") == 1)
        tab.press("e")
        tab.click(380, 120)
        tab.until("deletion", lambda: tab.marks("not a cell") == 0)
        tab.press("r")
        tab.drag(300, 200, 420, 300)
        book = MarkBook(project / "marks.jsonl")
        tab.until("region", lambda: len(book.cells("1").regions) == 1)
        tab.press("m")
        tab.train()
        tab.until("found cells", lambda: "in the slide" in tab.text())
        tab.until("end", lambda: "run 1: finished" in tab.text())
        tab.press("?")
        tab.until("help", lambda: "choose a class" in tab.text())
        tab.press("\ue00c")
        log = driver.get_log("browser")  # type: ignore[no-untyped-call]
        assert not [entry for entry in log if entry["level"] == "SEVERE"]
        export = tmp_path / "marks.geojson"
        export.write_text(
            driver.execute_async_script(
                "fetch('/slides/1/export/marks.geojson').then(r => r.text()).then(arguments[0])"
            )
        )
    assert len(read_cells(export)) == 20
    assert main(["cells", str(export)]) == 0


def test_the_page_says_when_the_studio_is_gone_and_saves_when_it_returns(tmp_path: Path) -> None:
    slide, centres = small_slide(tmp_path)
    project = tmp_path / "project"
    first, second, third = spread(centres[(np.abs(centres - (500, 350)) < (250, 250)).all(axis=1)], 3, 60)
    with chromium() as driver:
        with running_studio(slide, "--project", project, "--mpp", MPP) as (address, process):
            tab = StudioTab(driver, address)
            tab.open(500, 350, 0)
            tab.click(*first)
            tab.until("mark", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 1)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            tab.click(*second)
            tab.until("notice", lambda: "not saved yet" in tab.text())
            tab.click(*third)
        port = address.rstrip("/").rpartition(":")[2]
        with running_studio(slide, "--project", project, "--mpp", MPP, "--port", port):
            tab.until("all marks", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 3)


def test_fifty_clicks_a_second_are_all_kept(tmp_path: Path) -> None:
    slide, _ = small_slide(tmp_path)
    project = tmp_path / "project"
    with running_studio(slide, "--project", project, "--mpp", MPP) as (address, _), chromium() as driver:
        tab = StudioTab(driver, address)
        tab.open(500, 350, 1)
        tab.script("""
            const canvas = document.querySelector('.studio-canvas'), box = canvas.getBoundingClientRect();
            let i = 0;
            const timer = setInterval(() => {
                const x = box.left + 250 + (i % 20) * 32, y = box.top + 120 + Math.floor(i / 20) * 32;
                const at = {clientX: x, clientY: y, bubbles: true, button: 0};
                for (const type of ['mousedown', 'mouseup', 'click'])
                    canvas.dispatchEvent(new MouseEvent(type, at));
                if (++i === 200) clearInterval(timer);
            }, 20);
        """)
        tab.until("200 marks", lambda: tab.marks("cell") == 200)
        tab.until("all on disk", lambda: len(MarkBook(project / "marks.jsonl").items("1")) == 200, 30)
