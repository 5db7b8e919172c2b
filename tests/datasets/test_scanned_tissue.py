"""Synthetic tissue of many laboratories: the same from the same numbers, different from slide to slide."""

from dataclasses import replace

import numpy as np
import pytest
import shapely

from sparseshot.datasets.synthetic import ScannedTissue, SyntheticTissue, varied_tissue
from sparseshot.datasets.synthetic.scanned_tissue import Scanner
from sparseshot.errors import InputError
from sparseshot.images import Grid, Slide, read_region

PLAIN = SyntheticTissue(seed=5, size_px=(400, 300), mpp=0.5, tissue_fraction=1.0)


def test_is_a_slide_that_repeats_itself() -> None:
    with varied_tissue(0, 3, size_px=200, mpp=0.5) as tissue:
        slide: Slide = tissue
        assert slide.size == (200, 200)
        assert slide.mpp == pytest.approx(0.5)
        first = read_region(slide, 0, 0, 64, 48)
        assert first.shape == (48, 64, 3)
        assert np.array_equal(first, read_region(slide, 0, 0, 64, 48))
        assert max(slide.thumbnail(50).shape) == 50
    assert not np.array_equal(first, read_region(varied_tissue(0, 4, size_px=200, mpp=0.5), 0, 0, 64, 48))
    assert not np.array_equal(first, read_region(varied_tissue(1, 3, size_px=200, mpp=0.5), 0, 0, 64, 48))


def test_magnified_cells_are_larger_in_the_image() -> None:
    tissue = replace(PLAIN, mpp=0.25)
    seen = ScannedTissue(tissue, Scanner(magnification=2.0))
    assert seen.mpp == 0.5
    cells, same = tissue.cells(outlines=True), seen.cells(outlines=True)
    assert np.array_equal(cells.xy, same.xy)
    assert same.mpp == 0.5
    grid = Grid.over(seen)
    unchanged = tissue.read(Grid.over(tissue), grid.box)
    assert np.abs(seen.read(grid, grid.box).astype(int) - unchanged).mean() < 4, "only JPEG is between them"


def test_variety_changes_stains_and_nuclei_but_not_places() -> None:
    varied = replace(PLAIN, variety=3.0)
    assert len(varied.cells()) == pytest.approx(len(PLAIN.cells()), rel=0.2)
    areas = [
        np.median(shapely.area(replace(PLAIN, seed=seed, variety=3.0).cells(outlines=True).outline))
        for seed in range(8)
    ]
    usual = [
        np.median(shapely.area(replace(PLAIN, seed=seed).cells(outlines=True).outline)) for seed in range(8)
    ]
    assert np.std(np.log(areas)) > np.std(np.log(usual))


def test_brown_nuclei_are_brown() -> None:
    cells = PLAIN.cells()
    column, row = np.floor(cells.xy).astype(int).T
    for share, low, high in ((0.0, 0.0, 0.05), (1.0, 0.6, 1.0)):
        slide = replace(PLAIN, brown=share, debris=0.0)
        image = slide.read(Grid.over(slide), Grid.over(slide).box).astype(int)
        brown = (image[row, column, 0] > image[row, column, 2]).mean()
        assert low <= brown <= high, share


def test_a_smear_has_few_cells_on_a_bright_ground() -> None:
    smear = replace(PLAIN, smear=True)
    assert 0 < len(smear.cells()) < 0.5 * len(PLAIN.cells())
    bright = np.median(smear.read(Grid.over(smear), Grid.over(smear).box))
    assert bright > 225


def test_wrong_values() -> None:
    with pytest.raises(InputError, match="variety"):
        replace(PLAIN, variety=0.5)
    with pytest.raises(InputError, match="brown"):
        replace(PLAIN, brown=1.5)
