"""Marks are compared with the slide and its tissue before training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from PIL import Image

from sparseshot.cells import Cells
from sparseshot.errors import InputError, SparseshotWarning, TrainingWarning
from sparseshot.training.annotated import TrainingData

ON_GLASS = np.array([[1000.0 + 10 * k, 1000.0] for k in range(40)])


@pytest.fixture
def glassy(tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """Return a slide of 1.2 × 2 mm with tissue in its lower half, and 40 places in it."""
    pixels = np.full((4000, 2400, 3), 240, np.uint8)
    pixels[2600:3900, 200:2200] = (200, 140, 180)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png", np.random.default_rng(0).uniform((300, 2700), (2100, 3800), (40, 2)).round()


@pytest.mark.parametrize(
    ("change", "mpp", "cause"),
    [
        (lambda xy: xy / 2, 0.5, "they look like µm; .*, or .* half as large"),
        (lambda xy: xy * 0.4, 0.4, "they look like µm; convert them"),
        (lambda xy: xy / 4, 0.5, "a quarter as large; export them at full size"),
        (lambda xy: xy * 2, 0.5, "twice as large"),
        (lambda xy: xy[:, ::-1], 0.5, "their x and y look swapped"),
    ],
)
def test_marks_on_glass_are_refused_with_the_likely_cause(
    glassy: tuple[Path, Any], change: Any, mpp: float, cause: str
) -> None:
    slide, xy = glassy
    file = slide.with_suffix(".geojson")
    Cells(change(xy)).write(file)
    with pytest.raises(InputError, match=rf"\d+ of 40 marks lie .*{cause}"):
        TrainingData(pairs=((slide, file),), mpp=mpp).load()


def test_some_marks_on_glass_are_a_warning_and_become_tissue(glassy: tuple[Path, Any]) -> None:
    slide, xy = glassy
    file = slide.with_suffix(".geojson")
    xy[:12] = ON_GLASS[:12]
    Cells(xy).write(file)
    with pytest.warns(TrainingWarning, match=r"12 of 40 marks lie on glass of a\.png; they are learned"):
        ((item,), _) = TrainingData(pairs=((slide, file),), mpp=0.5).load()
    assert item.tissue is not None
    assert item.tissue.contains(xy).all()
    assert not item.tissue.contains(np.array([[1000.0, 1500.0]])).any()
    xy[:] = ON_GLASS
    Cells(xy).write(file)
    with pytest.warns(TrainingWarning, match="40 of 40 marks lie on glass.*marks of another slide"):
        TrainingData(pairs=((slide, file),), mpp=0.5).load()
    ((item,), _) = TrainingData(pairs=((slide, file),), mpp=0.5, everywhere=True).load()
    assert item.tissue is not None
    assert item.tissue.share == 1


def test_marks_of_what_is_no_cell_may_be_on_glass(glassy: tuple[Path, Any]) -> None:
    slide, xy = glassy
    file = slide.with_suffix(".geojson")
    xy[:30] = ON_GLASS[:30]
    Cells(xy, classes=("tumour", "Artefact"), label=[1] * 30 + [0] * 10).write(file)
    TrainingData(pairs=((slide, file),), mpp=0.5).load()


def test_an_exhaustive_region_beside_the_slide_is_left_out(glassy: tuple[Path, Any]) -> None:
    slide, xy = glassy
    file = slide.with_suffix(".geojson")
    regions = [shapely.box(500, 2700, 900, 3000), shapely.box(9000, 9000, 9900, 9900)]
    Cells(xy, regions=regions).write(file)
    with pytest.warns(
        TrainingWarning, match=r"a\.geojson: 1 exhaustive region lies outside a\.png.*left out"
    ):
        ((item,), _) = TrainingData(pairs=((slide, file),), mpp=0.5).load()
    assert len(item.marks.regions) == 1


def test_a_slide_without_any_tissue_is_tissue_where_it_is_marked(tmp_path: Path) -> None:
    Image.new("RGB", (4000, 4000), (240, 240, 240)).save(tmp_path / "a.png")
    Cells([[500, 500], [600, 700]]).write(tmp_path / "a.geojson")
    pairs = ((tmp_path / "a.png", tmp_path / "a.geojson"),)
    with pytest.warns(SparseshotWarning, match=r"a\.png: no tissue was found.*--everywhere"):
        ((item,), _) = TrainingData(pairs=pairs, mpp=0.5).load()
    assert item.tissue is not None
    assert item.tissue.contains(item.marks.xy).all()
    assert 0 < item.tissue.share < 0.05


def test_changed_pixels_of_a_folder_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "0.0").write_bytes(b"pixels")
    data = TrainingData(pairs=((tmp_path / "a.zarr", tmp_path / "a.geojson"),))
    before = data.fingerprint()
    assert before == data.fingerprint() != {}
    (tmp_path / "a.zarr" / "0.0").write_bytes(b"others")
    assert data.fingerprint() != before
