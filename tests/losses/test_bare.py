"""The losses in an environment that has torch and NumPy, and nothing else of what sparseshot needs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = {"torch", "numpy"}
MODULES = {
    "defusedxml", "lightning_fabric", "markdown_it", "matplotlib", "numba", "openslide", "orjson", "PIL",
    "pyarrow", "pydantic", "rich", "safetensors", "skimage", "scipy", "shapely", "simplejpeg", "tensorboardX",
    "tifffile", "typer",
}  # fmt: skip

TRAIN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
import torch
from sparseshot.losses import LOSSES, Hints, make_loss

for name in LOSSES:
    logits, target = torch.zeros(1, 1, 8, 8, requires_grad=True), torch.zeros(1, 8, 8, dtype=torch.long)
    target[0, 2:6, 2:6] = 1
    hints = Hints(truth=target, teacher_logits=torch.zeros(1, 1, 8, 8))
    make_loss(name)(logits, target, progress=0.5, hints=hints).backward()
    assert logits.grad is not None
ours = {{module.split(".")[1] for module in sys.modules if module.startswith("sparseshot.")}}
assert ours == {{"errors", "losses"}}, ours
"""


def test_torch_and_numpy_are_enough() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", TRAIN.format(blocked=MODULES)], check=True)


def test_all_that_sparseshot_needs_is_blocked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]} - KEPT  # type: ignore[index]
    other = {
        "lightning-fabric": "lightning_fabric",
        "markdown-it-py": "markdown_it",
        "openslide-bin": "openslide",
        "openslide-python": "openslide",
        "pillow": "PIL",
        "scikit-image": "skimage",
    }
    assert {other.get(name, name) for name in names} <= MODULES
