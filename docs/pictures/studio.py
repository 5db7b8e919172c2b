"""Take the pictures of the studio for the docs: ``python docs/pictures/studio.py SLIDE X Y``.

X and Y are the middle of the view in level-0 pixels. Dark spots there are clicked as cells. The pictures in
the docs are of CMU-1-Small-Region.svs (OpenSlide's test data, CC0) at 1000 1300. Needs Chromium and
chromedriver (the Debian packages ``chromium`` and ``chromium-driver``).
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.studio.chromium import StudioTab, chromium, dark_spots, running_studio, spread

HERE = Path(__file__).parent
_PATIENCE_S = 1200


class Album:
    """Pictures of a page at rest."""

    def __init__(self, tab: StudioTab) -> None:
        self.tab = tab

    def take(self, name: str) -> None:
        """Wait until the page is still, and keep what it looks like."""
        time.sleep(1.5)
        self.tab.picture(HERE / f"{name}.webp", width=880)


def main(slide: Path, x: float, y: float, *, steps: int = 0) -> None:
    """Open, count, click 20 cells, train, review a region, train again, compare; a picture of each."""
    spots = spread(dark_spots(slide, x, y), 25, 24)
    with tempfile.TemporaryDirectory() as folder:
        command = (slide, "--project", Path(folder, "project"), "--steps", steps)
        with running_studio(*command) as (address, _), chromium() as driver:
            tab = StudioTab(driver, address)
            album = Album(tab)
            tab.open(x + 90, y - 210, 1)
            tab.until("all cells", lambda: "starter: finished" in tab.text(), _PATIENCE_S)
            tab.press("k")
            tab.drag(x - 35, y - 290, x + 150, y - 110)
            tab.until("a count", lambda: "Region 1" in tab.text())
            tab.press("m")
            time.sleep(1.5)
            tab.picture(HERE / "studio.webp", width=1100)
            tab.press("z")
            tab.tab("Work")
            tab.open(x, y, 0)
            for place in spots[:20]:
                tab.click(*place)
            tab.until("marks", lambda: tab.marks("cell") == 20)
            album.take("studio-marks")
            tab.button("Train")
            points = "return document.querySelector('.studio-curve polyline')?.points.length || 0"
            tab.until("a curve", lambda: tab.script(points) > 5, _PATIENCE_S)
            album.take("studio-learning")
            tab.until("end", lambda: "run 1: finished" in tab.text(), _PATIENCE_S)
            tab.until("quality", lambda: "of the cells are found" in tab.text())
            album.take("studio-found")
            tab.press("n")
            tab.until("a region", lambda: "Region 1 of" in tab.text(), _PATIENCE_S)
            tab.follow()
            tab.until("cells in the region", tab.found)
            for place in spread(np.array(tab.found()), 5, 30):
                tab.click(*place)
            album.take("studio-review")
            tab.press(Keys.ENTER)
            tab.until("the end of the review", lambda: "Region done" in tab.text())
            tab.open(x, y, 0)
            tab.train(2, seconds=_PATIENCE_S)
            tab.until("quality", lambda: "of the cells are found" in tab.text())
            tab.tab("Layers")
            tab.button("uncertainty")
            album.take("studio-layers")
            tab.button("none")
            tab.tab("Runs")
            driver.find_element(By.CSS_SELECTOR, "[aria-label='compare with']").click()
            tab.until("a choice", lambda: driver.find_elements(By.CSS_SELECTOR, ".q-menu .q-item"))
            driver.find_elements(By.CSS_SELECTOR, ".q-menu .q-item")[-1].click()
            tab.until("a comparison", lambda: "only by Run 1" in tab.text())
            album.take("studio-compare")


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        float(sys.argv[2]),
        float(sys.argv[3]),
        steps=int(sys.argv[4]) if len(sys.argv) > 4 else 0,
    )
