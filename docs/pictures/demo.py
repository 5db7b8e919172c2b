"""The upper part of the page as docs/pictures/demo.png: ``python docs/pictures/demo.py demo/index.html``.

Needs Chromium (the Debian package ``chromium``).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from sparseshot.demo.charts import colour_of
from sparseshot.demo.pictures import FALSE, FOUND, MARK, MISSED
from sparseshot.demo.plan import LOSSES

WINDOW_PX = (1000, 2275)  # down to the end of the close views
WIDTH_PX = 780
COLOURS = 88
LOOKS = (FALSE, FOUND, MARK, MISSED)
MEANT = [colour_of(loss) for loss in LOSSES] + [c for look in LOOKS for c in (look.colour, look.dot) if c]
"""Colours that mean something, and must not be lost among the many of the tissue."""


def main(page: Path) -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "page.png")
        size = "--window-size={},{}".format(*WINDOW_PX)
        command = (
            "chromium",
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            size,
            f"--screenshot={shot}",
        )
        subprocess.run((*command, page.resolve().as_uri()), check=True)
        whole = Image.open(shot).convert("RGB")
    picture = whole.resize((WIDTH_PX, WIDTH_PX * whole.height // whole.width), Image.Resampling.LANCZOS)
    # With a strip of each meant colour below, the palette has to hold it.
    striped = Image.new("RGB", (picture.width, picture.height + 60 * len(MEANT)))
    striped.paste(picture)
    for index, colour in enumerate(MEANT):
        top = picture.height + 60 * index
        striped.paste(colour, (0, top, picture.width, top + 60))
    palette = striped.quantize(COLOURS, dither=Image.Dither.NONE)
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(
        Path(__file__).with_suffix(".png"), optimize=True
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
