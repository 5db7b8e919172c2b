"""Take the picture of the demo's page for the docs: ``python docs/pictures/demo.py demo/index.html``.

Needs Chromium (the Debian package ``chromium``).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

WINDOW_PX = (1000, 1925)  # down to the first row of close views
WIDTH_PX = 700


def main(page: Path) -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "page.png")
        size = "--window-size={},{}".format(*WINDOW_PX)
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={shot}")
        subprocess.run(("chromium", *options, page.resolve().as_uri()), check=True)
        whole = Image.open(shot).convert("RGB")
    picture = whole.resize((WIDTH_PX, WIDTH_PX * whole.height // whole.width), Image.Resampling.LANCZOS)
    picture.save(Path(__file__).with_suffix(".webp"), quality=60, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
