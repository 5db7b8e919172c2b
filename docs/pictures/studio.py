"""Take the pictures of the studio for the docs: ``python docs/pictures/studio.py SLIDE X Y``.

X and Y are the middle of the view in level-0 pixels. Dark spots there are clicked as cells. Needs Chromium
and chromedriver (the Debian packages ``chromium`` and ``chromium-driver``).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, maximum_filter
from tests.studio.chromium import StudioTab, chromium, running_studio, spread

from sparseshot.images import Box, Grid, open_slide

HERE = Path(__file__).parent
WIDTH, HEIGHT = 960, 720


def dark_spots(path: Path, x: float, y: float) -> np.ndarray:
    """Return places that are darker than what surrounds them, the darkest first."""
    x0, y0 = int(x - WIDTH / 2), int(y - HEIGHT / 2)
    with open_slide(path) as slide:
        pixels = slide.read(Grid.over(slide), Box(x0, y0, x0 + WIDTH, y0 + HEIGHT))
    dark = gaussian_filter(255.0 - pixels[..., 0], 3)
    rows, columns = np.nonzero((maximum_filter(dark, 15) == dark) & (dark > np.quantile(dark, 0.8)))
    order = np.argsort(-dark[rows, columns])
    places = np.stack([columns, rows], axis=1)[order] + (x0 + 0.5, y0 + 0.5)
    clear = (np.abs(places - (x, y)) < (WIDTH / 2 - 220, HEIGHT / 2 - 60)).all(axis=1)
    return np.random.default_rng(0).permutation(places[clear])


def main(slide: Path, x: float, y: float) -> None:
    """Open, click 20 cells, train, correct five, train again; a picture of each."""
    spots = spread(dark_spots(slide, x, y), 25, 24)
    with tempfile.TemporaryDirectory() as folder:
        command = (slide, "--project", Path(folder, "project"))
        with running_studio(*command) as (address, _), chromium() as driver:
            tab = StudioTab(driver, address)
            tab.open(x, y, 0)
            for place in spots[:20]:
                tab.click(*place)
            tab.until("marks", lambda: tab.marks("cell") == 20)
            tab.picture(HERE / "studio-marks.png")
            tab.train()
            tab.until("end", lambda: "run 1: finished" in tab.text(), 1200)
            tab.until("counts", lambda: "in the slide" in tab.text())
            tab.picture(HERE / "studio-found.png")
            for place in spots[20:]:
                tab.click(*place)
            tab.until("corrections", lambda: tab.marks("cell") >= 24)
            tab.train()
            tab.until("end", lambda: "run 2: finished" in tab.text(), 1200)
            tab.press("s")
            tab.picture(HERE / "studio-again.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
