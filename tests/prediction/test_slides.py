"""What is asked for of slides: regions, and what the command loads for it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shapely
from PIL import Image
from tests.prediction.networks import ArraySlide

from sparseshot.cells import Cells, write_cells
from sparseshot.errors import InputError
from sparseshot.prediction.regions import parse_region

SLIDE = ArraySlide(np.full((400, 500, 3), 235, np.uint8))


def test_a_region_is_a_box_or_what_somebody_drew(tmp_path: Path) -> None:
    assert parse_region("10, 20, 30, 40", SLIDE).equals(shapely.box(10, 20, 40, 60))
    shapes = np.array([shapely.box(0, 0, 50, 50), shapely.box(100, 100, 160, 150)])
    drawn = Cells([[25, 25], [130, 125]], classes=("tumour", "stroma"), label=[0, 1], outline=shapes)
    write_cells(drawn, tmp_path / "drawn.geojson")
    assert parse_region(f"{tmp_path}/drawn.geojson", SLIDE).area == 50 * 50 + 60 * 50
    assert parse_region(f"{tmp_path}/drawn.geojson#stroma", SLIDE).equals(shapes[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3", "give x,y,width,height"),
        ("1,2,0,4", "give x,y,width,height"),
        ("900,900,10,10", "lies outside array, which has 500 × 400 pixels"),
        ("drawn.geojson#fat", "no outline 'fat' in drawn.geojson; it has tumour"),
    ],
)
def test_a_region_that_is_none(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = np.array([shapely.box(0, 0, 50, 50)])
    write_cells(Cells([[25, 25]], classes=("tumour",), outline=shape), tmp_path / "drawn.geojson")
    with pytest.raises(InputError, match=message):
        parse_region(text, SLIDE)


LOADED = """
import sys
from sparseshot.cli import main
assert main(sys.argv[1:]) == 0
print(len([name for name in sys.modules if name.startswith("sparseshot")]))
"""


def test_the_command_loads_few_of_our_modules(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(100, 255, (256, 256, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    words = ["predict", "starter", "a.png", "--mpp", "0.5", "--out", "out", "--device", "cpu", "--everywhere"]
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.splitlines()[-1]) <= 90
