"""A headless Chromium, and a studio in a process of its own, for tests and pictures of the page."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

MISSING = shutil.which("chromium") is None or shutil.which("chromedriver") is None
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@contextmanager
def running_studio(*arguments: object) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run ``sparseshot studio``; yield its address and process."""
    command = [sys.executable, "-m", "sparseshot", "studio", *map(str, arguments), "--no-browser", "--json"]
    # NiceGUI behaves otherwise where it believes to be tested by pytest itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        said = ""
        while "}" not in said:
            line = process.stdout.readline()
            assert line, "the studio ended"
            said += line
        yield json.loads(said)["address"], process
    finally:
        process.terminate()
        process.communicate(timeout=60)


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
        moves.release().perform()

    def press(self, keys: str) -> None:
        """Type keys."""
        ActionChains(self.driver).send_keys(keys).perform()

    def marks(self, name: str) -> int:
        """Return how many marks of a class the list of classes counts."""
        for button in self.driver.find_elements(By.CSS_SELECTOR, ".studio-classes button"):
            words = button.text.split("\n")
            if name in words:
                return int(next(word for word in words[words.index(name) + 1 :] if word.isdecimal()))
        return -1

    def train(self) -> None:
        """Press the button."""
        self.driver.find_element(By.XPATH, "//button[contains(., 'Train')]").click()

    def picture(self, path: Path) -> None:
        """Keep what the page looks like, in few colours so that the file is small."""
        from PIL import Image

        self.driver.save_screenshot(str(path))
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(200, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


def spread(places: "np.ndarray[Any, Any]", number: int, apart: float) -> list[tuple[float, float]]:
    """Choose places that are at least ``apart`` from each other."""
    chosen: list[tuple[float, float]] = []
    for x, y in places.tolist():
        if all(abs(x - a) + abs(y - b) > apart for a, b in chosen):
            chosen.append((x, y))
    return chosen[:number]
