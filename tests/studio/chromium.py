"""A headless Chromium, and a studio in a process of its own, for tests and pictures of the page."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, maximum_filter
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from tests.forked import process

from sparseshot.cli import main
from sparseshot.images import Box, Grid, open_slide
from sparseshot.studio.project_runs import Runs

MISSING = shutil.which("chromium") is None or shutil.which("chromedriver") is None
IN_BROWSER = [
    pytest.mark.skipif(MISSING, reason="chromium and chromedriver are not installed (Debian's packages)"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]
COMPONENT = "document.querySelector('.studio-canvas').slideMap"
"""The map as the page's own code sees it."""
_HOLD_S = 0.1
"""Rest of the mouse before a button is released: a browser that has little time leaves moves out."""

_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _words(arguments: tuple[object, ...]) -> list[str]:
    if "--port" not in arguments:
        # Not the studio's own first port: a browser of another test may still talk to that.
        arguments += "--port", free_port()
    return ["studio", *map(str, arguments), "--no-browser", "--json"]


@contextmanager
def running_studio(*arguments: object) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run ``sparseshot studio``; yield its address and process."""
    command = [sys.executable, "-m", "sparseshot", *_words(arguments)]
    # NiceGUI behaves otherwise where it believes to be tested by pytest itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    studio = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert studio.stdout is not None
        said = ""
        while "}" not in said:
            line = studio.stdout.readline()
            assert line, "the studio ended"
            said += line
        yield json.loads(said)["address"], studio
    finally:
        studio.terminate()
        studio.communicate(timeout=60)


@contextmanager
def serving_studio(*arguments: object, errors: Path | None = None) -> Iterator[tuple[str, BaseProcess]]:
    """Serve the page alone, without the process that finds cells; yield its address and process.

    Both take longer to start than many a test, so the one is forked and the other is left out.

    Args:
        arguments: of the command.
        errors: file for its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        serving = process(_serve, _words(arguments), Path.cwd(), said, errors)
        try:
            while not (said.exists() and "}" in said.read_text()):
                assert serving.is_alive(), "the studio ended"
                time.sleep(0.02)
            yield json.loads(said.read_text())["address"], serving
        finally:
            serving.terminate()
            serving.join(60)


def _serve(words: list[str], place: Path, said: Path, errors: Path | None) -> None:
    os.chdir(place)
    for name in [name for name in os.environ if name.startswith("PYTEST")]:
        del os.environ[name]
    for file, number in ((said, 1), (errors, 2)):
        if file is not None:
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    Runs.warm_up = lambda self: None  # type: ignore[method-assign]
    sys.exit(main(words))


@contextmanager
def chromium(*, width: int = 1280, height: int = 720) -> Iterator[webdriver.Chrome]:
    """Start a browser with a window of this size, nothing of it kept."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = Options()
        for flag in [*_FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.binary_location = shutil.which("chromium") or ""
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield driver
        finally:
            driver.quit()


class StudioTab:
    """What a person does with the page."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, x: float, y: float, zoom: int, *, slide: str = "1") -> None:
        """Open the page at a place, in level-0 pixels."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{slide},{x:.0f},{y:.0f},{zoom}")
        self.x, self.y, self.scale = round(x), round(y), 2.0**zoom
        self.until(
            "tiles",
            lambda: self.script("return document.querySelectorAll('.leaflet-tile-loaded').length") > 1,
        )
        self.until("marks", lambda: self.driver.find_elements(By.CSS_SELECTOR, ".studio-classes button.on"))

    def script(self, code: str) -> Any:
        """Run JavaScript."""
        return self.driver.execute_script(code)

    def until(self, what: str, holds: Callable[[], Any], seconds: float = 240) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"no {what} after {seconds} s; the page says: {self.text()}"
            time.sleep(0.05)

    def errors(self) -> list[str]:
        """Return the errors in the log of the browser."""
        log = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in log if entry["level"] == "SEVERE"]

    def text(self) -> str:
        """Return what the page says."""
        return str(self.script("return document.body.innerText"))

    def offset(self, x: float, y: float) -> tuple[int, int]:
        """Return where a place is, from the middle of the map in pixels of the screen."""
        return round((x - self.x) * self.scale), round((y - self.y) * self.scale)

    def click(self, x: float, y: float) -> None:
        """Click a place of the slide."""
        canvas = self.driver.find_element(By.CSS_SELECTOR, ".studio-canvas")
        moves = ActionChains(self.driver, duration=0)
        moves.move_to_element_with_offset(canvas, *self.offset(x, y)).click().perform()

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Drag from one place to another."""
        canvas = self.driver.find_element(By.CSS_SELECTOR, ".studio-canvas")
        (a, b), (c, d) = self.offset(x0, y0), self.offset(x1, y1)
        moves = ActionChains(self.driver, duration=20)
        moves.move_to_element_with_offset(canvas, a, b).click_and_hold()
        moves.move_by_offset((c - a) // 2, (d - b) // 2).move_by_offset(
            c - a - (c - a) // 2, d - b - (d - b) // 2
        )
        moves.pause(_HOLD_S).release().perform()

    def lasso(self, places: Sequence[tuple[float, float]]) -> None:
        """Drag around places, and back to the first."""
        canvas = self.driver.find_element(By.CSS_SELECTOR, ".studio-canvas")
        points = [self.offset(*place) for place in places]
        moves = ActionChains(self.driver, duration=20)
        moves.move_to_element_with_offset(canvas, *points[0]).click_and_hold()
        for (a, b), (c, d) in zip(points, [*points[1:], points[0]], strict=True):
            for k in range(4):
                moves.move_by_offset(
                    (c - a) * (k + 1) // 4 - (c - a) * k // 4, (d - b) * (k + 1) // 4 - (d - b) * k // 4
                )
        moves.pause(_HOLD_S).release().perform()

    def press(self, keys: str) -> None:
        """Type keys."""
        ActionChains(self.driver).send_keys(keys).perform()

    def marks(self, name: str) -> int:
        """Return how many marks of a class the list of classes counts."""
        texts = self.script(
            "return [...document.querySelectorAll('.studio-classes button')].map((each) => each.innerText)"
        )
        for text in texts:
            words = text.split("\n")
            if name in words:
                return int(next(word for word in words[words.index(name) + 1 :] if word.isdecimal()))
        return -1

    def tab(self, name: str) -> None:
        """Choose a tab of the side panel."""
        for each in self.driver.find_elements(By.CSS_SELECTOR, "[role=tab]"):
            if each.text.strip() == name:
                each.click()

    def button(self, name: str) -> None:
        """Press a button."""
        self.until(name, lambda: self._buttons(name))
        self._buttons(name)[0].click()

    def _buttons(self, name: str) -> list[Any]:
        found = self.driver.find_elements(By.XPATH, f"//button[contains(., '{name}')]")
        return [each for each in found if each.is_displayed()]

    def train(self, number: int, *, seconds: float = 300) -> None:
        """Press the button, and wait until the run has ended."""
        self.tab("Work")
        self.button("Train")
        self.until("found cells", lambda: f"run {number}: finished" in self.text(), seconds)
        self.until("counts", lambda: "found in the slide" in self.text())

    def found_in_view(self) -> list[tuple[float, float]]:
        """Return the places of all found cells that the map holds."""
        return [
            (x, y) for x, y, *_ in self.script(f"const m = {COMPONENT}; return m.cells ? m.cells.cells : []")
        ]

    def found(self) -> list[tuple[float, float]]:
        """Return the places of the found cells in the region under review, as the map holds them."""
        cells = self.script(
            f"const m = {COMPONENT}; return (m.cells?.cells || []).filter((c) => c[3] >= m.threshold)"
        )
        x0, y0, x1, y1 = self.script(f"return {COMPONENT}.region.box")
        return [(x, y) for x, y, *_ in cells if x0 + 9 < x < x1 - 9 and y0 + 9 < y < y1 - 9]

    def unsaved(self) -> int:
        """Return how many changes the studio has not confirmed."""
        return int(self.script(f"return {COMPONENT}.queue.length"))

    def result(self) -> str:
        """Return the id of the result that the map shows."""
        return str(self.script(f"return {COMPONENT}.result"))

    def follow(self) -> None:
        """Take note of where the map is now."""
        self.until("rest", lambda: not self.script(f"return {COMPONENT}.map._animatingZoom"))
        self.x, self.y, zoom = self.script(
            f"const m = {COMPONENT}.map, c = m.getCenter(); return [c.lng, -c.lat, m.getZoom()]"
        )
        self.scale = 2.0**zoom

    def picture(self, path: Path, *, width: int = 1280) -> None:
        """Keep what the page looks like, as WebP."""
        from PIL import Image

        shot = io.BytesIO(self.driver.get_screenshot_as_png())
        with Image.open(shot) as image:
            small = image.convert("RGB").resize((width, image.height * width // image.width))
        small.save(path, quality=55, method=6)


def dark_spots(path: Path, x: float, y: float, *, width: int = 900, height: int = 600) -> NDArray[np.float64]:
    """Return places around another one that are darker than what surrounds them, in random order."""
    x0, y0 = int(x - width / 2), int(y - height / 2)
    with open_slide(path) as slide:
        pixels = slide.read(Grid.over(slide), Box(x0, y0, x0 + width, y0 + height))
    dark = gaussian_filter(255.0 - pixels[..., 0], 3)
    rows, columns = np.nonzero((maximum_filter(dark, 15) == dark) & (dark > np.quantile(dark, 0.8)))
    places = np.stack([columns + x0, rows + y0], axis=1) + 0.5
    clear = (np.abs(places - (x, y)) < (width / 2 - 220, height / 2 - 70)).all(axis=1)
    shuffled: NDArray[np.float64] = np.random.default_rng(0).permutation(places[clear])
    return shuffled


def spread(places: "np.ndarray[Any, Any]", number: int, apart: float) -> list[tuple[float, float]]:
    """Choose places that are at least ``apart`` from each other."""
    chosen: list[tuple[float, float]] = []
    for x, y in places.tolist():
        if all(abs(x - a) + abs(y - b) > apart for a, b in chosen):
            chosen.append((x, y))
    return chosen[:number]
