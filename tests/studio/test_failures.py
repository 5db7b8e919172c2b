"""What may go wrong while somebody works: the page says so, and nothing is lost."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from selenium import webdriver
from tests.studio.chromium import IN_BROWSER, StudioTab, running_studio, serving_studio, spread
from tests.studio.small_project import MPP, small_slide, worker_of

from sparseshot.cells import read_cells
from sparseshot.studio.marks import MarkBook
from sparseshot.studio.project_runs import RUNS
from sparseshot.work.folder import OUTPUT

pytestmark = IN_BROWSER


def on_disk(project: Path) -> int:
    return len(MarkBook(project / "marks.jsonl").items("1"))


class Opened(NamedTuple):
    """The studio with a small slide in view.

    Attributes:
        tab: of the browser.
        pid: of the studio.
        slide: its file.
        project: its folder.
        places: of cells in view.
    """

    tab: StudioTab
    pid: int
    slide: Path
    project: Path
    places: list[tuple[float, float]]


@contextmanager
def opened(
    folder: Path, driver: webdriver.Chrome, *options: object, trains: bool = False
) -> Iterator[Opened]:
    slide, centres = small_slide(folder)
    project = folder / "project"
    inside = centres[(np.abs(centres - (500, 350)) < (250, 250)).all(axis=1)]
    start: Any = running_studio if trains else serving_studio
    with start(slide, "--project", project, "--mpp", MPP, *options) as (address, process):
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        yield Opened(tab, process.pid, slide, project, spread(inside, 40, 30))


@contextmanager
def full_disk(pid: int, *, most_bytes: int) -> Iterator[None]:
    """Let no file of a process grow beyond a size."""
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, unlimited))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))


def test_a_full_disk_and_a_lost_connection(tmp_path: Path, driver: webdriver.Chrome) -> None:
    with opened(tmp_path, driver) as studio:
        tab, project = studio.tab, studio.project
        tab.click(*studio.places[0])
        tab.until("mark", lambda: on_disk(project) == 1)

        with full_disk(studio.pid, most_bytes=(project / "marks.jsonl").stat().st_size):
            tab.click(*studio.places[1])
            tab.until("notice", lambda: "disk is full" in tab.text(), 60)
            assert on_disk(project) == 1
        tab.until("second mark", lambda: on_disk(project) == 2, 60)

        # The computer sleeps: the connection breaks, and the page is used before it is back.
        tab.script("window.socket.disconnect()")
        tab.click(*studio.places[2])
        tab.until("mark without the WebSocket", lambda: on_disk(project) == 3, 60)
        time.sleep(3)  # so that the server writes the number while nobody listens
        tab.script("window.socket.connect()")
        tab.until("number of marks, which the server writes", lambda: "3 marks" in tab.text(), 60)


def test_an_export_arrives_whole_or_not_at_all(tmp_path: Path, driver: webdriver.Chrome) -> None:
    with opened(tmp_path, driver) as studio:
        tab, project, saved = studio.tab, studio.project, tmp_path / "small-marks.geojson"
        tab.driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
        )
        tab.click(*studio.places[0])
        tab.until("mark", lambda: on_disk(project) == 1)
        with full_disk(studio.pid, most_bytes=1):
            export_marks(tab)
            tab.until("notice", lambda: "Not exported: File too large" in tab.text(), 60)
            assert not saved.exists()
        export_marks(tab)
        tab.until("file", saved.exists, 60)
        assert read_cells(saved).counts()["cell"] == 1
        assert tab.marks("cell") == 1  # the page is still there


def export_marks(tab: StudioTab) -> None:
    tab.button("Export")
    tab.until("menu", lambda: "QuPath GeoJSON" in tab.text())
    tab.driver.find_element("xpath", "//*[contains(@class, 'q-item') and . = 'QuPath GeoJSON']").click()


def test_tabs_and_processes_see_each_others_marks(tmp_path: Path, driver: webdriver.Chrome) -> None:
    with opened(tmp_path, driver) as studio:
        tab, project = studio.tab, studio.project
        tab.click(*studio.places[0])
        tab.until("mark", lambda: on_disk(project) == 1)
        code = (
            "import sys; from pathlib import Path; from sparseshot.studio.marks import MarkBook;"
            "MarkBook(Path(sys.argv[1])).record("
            "[{'key': 'other', 'slide': '1', 'add': [{'class': 'cell', 'at': [444, 333]}]}])"
        )
        subprocess.run([sys.executable, "-c", code, str(project / "marks.jsonl")], check=True)
        tab.until("mark of another process", lambda: tab.marks("cell") == 2, 60)
        first = tab.driver.current_window_handle
        tab.driver.switch_to.new_window("tab")
        metrics = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
        tab.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        second = StudioTab(tab.driver, tab.address)
        second.open(500, 350, 0)
        second.until("marks of the first tab", lambda: second.marks("cell") == 2, 60)
        second.click(*studio.places[1])
        second.until("mark", lambda: on_disk(project) == 3, 60)
        tab.driver.switch_to.window(first)
        tab.until("mark of the second tab", lambda: tab.marks("cell") == 3, 60)


def test_a_training_that_dies_is_reported_and_resumed(tmp_path: Path, driver: webdriver.Chrome) -> None:
    with opened(tmp_path, driver, "--steps", 100_000, trains=True) as studio:
        tab, project = studio.tab, studio.project
        for place in studio.places[:20]:
            tab.click(*place)
        tab.until("marks", lambda: on_disk(project) == 20)
        tab.press("t")
        tab.until("training", lambda: "step" in tab.text())
        os.kill(worker_of(project), signal.SIGKILL)
        tab.until("notice", lambda: "ended while training" in tab.text(), 60)
        tab.driver.find_element("xpath", "//button[contains(., 'Resume')]").click()
        tab.until("training again", lambda: "run 1: learning, step" in tab.text())
        (project / RUNS / "0001" / "stop").touch()
        tab.until("end", lambda: "stopped" in tab.text(), 60)


def test_a_slide_that_disappears_and_comes_back(tmp_path: Path, driver: webdriver.Chrome) -> None:
    with opened(tmp_path, driver) as studio:
        tab, project = studio.tab, studio.project
        studio.slide.rename(tmp_path / "away.png")
        tab.press("-")  # tiles that the page does not have yet
        tab.until("notice", lambda: "disappeared" in tab.text(), 60)
        tab.click(503, 353)
        tab.until("mark without the slide", lambda: on_disk(project) == 1, 60)
        (tmp_path / "away.png").rename(studio.slide)
        tab.press("-")
        tab.until("no notice", lambda: "disappeared" not in tab.text(), 60)


def test_a_studio_that_is_terminated_ends_the_process_that_trains_nothing(tmp_path: Path) -> None:
    slide, _ = small_slide(tmp_path)
    project = tmp_path / "project"
    with running_studio(slide, "--project", project, "--mpp", MPP):
        while not (project / OUTPUT).exists():  # it is opened right before the process starts
            time.sleep(0.1)
        time.sleep(1)
        worker = worker_of(project)
    assert not Path(f"/proc/{worker}").exists()


def test_names_are_text_and_nothing_else(tmp_path: Path, driver: webdriver.Chrome) -> None:
    evil = "<img src=x onerror=window.pwned=1>"
    slide, _ = small_slide(tmp_path)
    slide = slide.rename(tmp_path / "<img src=x onerror=window.pwned=1>.png")
    with serving_studio(slide, "--project", tmp_path / "project", "--mpp", MPP) as (address, _):
        book = MarkBook(tmp_path / "project" / "marks.jsonl")
        book.record([{"key": "evil", "class": evil, "color": "#112233"}])
        book.record([{"key": "mark", "slide": "1", "add": [{"class": evil, "at": [500, 350]}]}])
        tab = StudioTab(driver, address)
        tab.open(500, 350, 0)
        tab.until("the name of the class", lambda: tab.text().count(evil) >= 2)
        assert tab.script("return window.pwned") is None
        assert not driver.find_elements("css selector", "img[src='x']")
