import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.images import slide_files

from sparseshot.cli import main
from sparseshot.images import read_image

GLASS_AND_TISSUE = np.full((600, 800, 3), 240, np.uint8)
GLASS_AND_TISSUE[:, 400:] = (210, 150, 190)


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    return slide_files.write_aperio(tmp_path / "a b.svs", GLASS_AND_TISSUE, mpp=4.0)


def test_the_properties_of_a_slide(slide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slide", str(slide)]) == 0
    out = capsys.readouterr().out
    assert "a b.svs  aperio" in out
    assert "800 × 600 px, 3.20 × 2.40 mm at 4 µm/px" in out
    assert "level 1 200 × 150 px at 16 µm/px" in out
    assert "tissue  50." in out


def test_json_and_picture(slide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "tissue.png"
    size = ["--mpp", "8", "--force-mpp"]
    assert main(["slide", str(slide), "--json", *size, "--picture", str(picture)]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["width"], known["height"], known["mpp"]) == (800, 600, 8.0)
    assert [level["mpp"] for level in known["levels"]] == [8.0, 32.0, 128.0]
    assert known["tissue_share"] == pytest.approx(0.5, abs=0.02)
    assert known["tissue_mm2"] == pytest.approx(0.5 * 6.4 * 4.8, rel=0.03)
    assert read_image(picture).shape == (600, 800, 3)


def test_a_slide_without_mpp_asks_for_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(GLASS_AND_TISSUE).save(tmp_path / "a.png")
    assert main(["slide", str(tmp_path / "a.png")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "--mpp 0.25" in error
    assert main(["slide", str(tmp_path / "a.png"), "--mpp", "0"]) == 2


def test_missing_and_broken_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slide", str(tmp_path / "none.svs")]) == 1
    broken = slide_files.write_aperio(tmp_path / "b.svs", GLASS_AND_TISSUE)
    broken.write_bytes(broken.read_bytes()[:5000])
    assert main(["slide", str(broken)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "none.svs" in errors[0]
    assert "copy it again" in errors[1]


def test_a_picture_that_cannot_be_written(
    slide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slide", str(slide), "--picture", str(tmp_path / "no" / "a.png")]) == 1
    assert "does not exist" in capsys.readouterr().err
