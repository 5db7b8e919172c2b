"""The scripts of the page in Node: what they decide, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import sparseshot.studio

MISSING = shutil.which("node") is None
_HERE = Path(__file__).parent
_STUDIO = Path(sparseshot.studio.__file__).parent


def run_page(folder: Path, code: str) -> Any:
    """Run JavaScript with what ``fake_page.mjs`` exports; return the value it passes to ``answer``."""
    modules = folder / "node_modules"
    shutil.copytree(_STUDIO / "browser", modules / "sparseshot-studio")
    shutil.copy(_HERE / "fake_page.mjs", folder)
    (modules / "nicegui-leaflet").mkdir()
    shutil.copy(_HERE / "fake_leaflet.mjs", modules / "nicegui-leaflet" / "index.js")
    for each in (folder, *modules.iterdir()):
        (each / "package.json").write_text('{"type": "module"}')
    head = (
        'import { marked, page, serve } from "./fake_page.mjs";\n'
        "const answer = (value) => { console.log(JSON.stringify(value)); process.exit(); };\n"
    )
    (folder / "test.mjs").write_text(head + code)
    done = subprocess.run(
        ["node", "test.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
