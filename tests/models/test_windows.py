import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.images.slide import Box, Grid
from sparseshot.images.tissue import TissueMask
from sparseshot.models.inference import mirrored
from sparseshot.models.windows import WindowLayout, plan


def tissue_of(mask: NDArray[np.bool_], mask_px: float, grid: Grid) -> TissueMask:
    """Return a mask with one pixel for ``mask_px`` pixels of the grid."""
    height, width = mask.shape
    coarse = Grid(width, height, mask_px * grid.downsample, mask_px * grid.mpp)
    return TissueMask(mask, coarse, (int(grid.width * grid.downsample), int(grid.height * grid.downsample)))


def everywhere(grid: Grid) -> TissueMask:
    return tissue_of(np.ones((1, 1), np.bool_), max(grid.width, grid.height), grid)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 700),
    height=st.integers(1, 700),
    tile=st.integers(16, 300),
    extra=st.integers(0, 400),
    halo=st.sampled_from([0, 10, 40]),
    alignment=st.sampled_from([1, 8, 16]),
    mask_px=st.floats(3, 90),
    seed=st.integers(0, 99),
)
def test_windows_and_their_tiles_cover_all_tissue_once(  # noqa: PLR0917
    width: int, height: int, tile: int, extra: int, halo: int, alignment: int, mask_px: float, seed: int
) -> None:
    grid = Grid(width, height, 2.0, 0.5)
    shape = (int(np.ceil(height / mask_px)), int(np.ceil(width / mask_px)))
    tissue = tissue_of(np.random.default_rng(seed).random(shape) < 0.4, mask_px, grid)
    layout = WindowLayout(tile, window_px=tile + extra + 3 * 48, halo_px=halo)
    bands = plan(grid, tissue, layout, margin_px=24, alignment_px=alignment)

    expected = tissue.at(np.arange(width) + 0.5, np.arange(height) + 0.5, grid)
    cores = np.zeros((height, width), int)
    sizes = set()
    for band in bands:
        for window in band.windows:
            core = window.core
            cores[core.y0 : core.y1, core.x0 : core.x1] += 1
            assert core.y1 <= band.next_y0
            seen = np.zeros((height, width), int)
            for each in window.tiles:
                box = each.core.meet(grid.box)
                seen[box.y0 : box.y1, box.x0 : box.x1] += 1
                assert each.padded.x0 == each.core.x0 - 24
                assert each.core.x0 % alignment == each.core.y0 % alignment == 0
                sizes.add((each.padded.width, each.padded.height))
            assert seen.max() == 1
            box = window.box.meet(grid.box)
            rows, columns = slice(box.y0, box.y1), slice(box.x0, box.x1)
            assert (seen[rows, columns] >= expected[rows, columns]).all()
            assert window.box == core or box.x0 in {0, core.x0 - -(-halo // alignment) * alignment}
    assert cores.max(initial=0) <= 1
    assert (cores >= expected).all()
    assert len(sizes) <= 1
    assert [band.index for band in bands] == list(range(len(bands)))


def test_bands_without_tissue_are_passed_over() -> None:
    mask = np.zeros((10, 10), bool)
    mask[0, 3] = mask[9, 9] = True
    grid = Grid(1000, 1000, 1.0, 0.5)
    tissue = tissue_of(mask, 100.0, grid)
    bands = plan(grid, tissue, WindowLayout(100, 100), margin_px=8, alignment_px=4)
    assert [window.core for band in bands for window in band.windows] == [
        (300, 0, 400, 100),
        (900, 900, 1000, 1000),
    ]
    assert [band.next_y0 for band in bands] == [900, np.inf]


def test_a_small_image_is_one_tile_no_larger_than_it() -> None:
    grid = Grid(300, 200, 1.0, 0.5)
    (band,) = plan(
        grid, everywhere(grid), WindowLayout(1024, 4096, halo_px=100), margin_px=16, alignment_px=8
    )
    (window,) = band.windows
    assert window.box == (0, 0, 300, 200)
    assert [tile.padded for tile in window.tiles] == [(-16, -16, 320, 320)]


def test_windows_too_small_for_their_halo_are_refused() -> None:
    grid = Grid(9000, 9000, 1.0, 0.5)
    with pytest.raises(InputError, match="300 or more"):
        plan(grid, everywhere(grid), WindowLayout(256, 256, halo_px=100), margin_px=16, alignment_px=4)
    with pytest.raises(InputError, match="needs 16 or more"):
        plan(grid, everywhere(grid), WindowLayout(8, 8), margin_px=16, alignment_px=16)


def test_long_rows_of_independent_windows_are_several_bands() -> None:
    grid = Grid(5000, 1500, 1.0, 0.5)
    layout = WindowLayout(500, 1000, halo_px=100, band_windows=3)
    bands = plan(grid, everywhere(grid), layout, margin_px=8, alignment_px=4)
    assert [len(band.windows) for band in bands] == [3, 3, 1, 3, 3, 1, 3, 3, 1]
    corners = [window.core[:2] for band in bands for window in band.windows]
    assert corners == sorted(corners, key=lambda corner: corner[::-1])


def test_beyond_its_edges_an_image_is_its_mirror_image_in_every_tile() -> None:
    grid = Grid(20, 12, 1.0, 0.5)
    image = np.random.default_rng(0).integers(0, 255, (12, 20, 3), np.uint8)
    whole = np.pad(image, ((4, 4), (4, 4), (0, 0)), mode="symmetric")
    for box in (Box(-4, -4, 8, 8), Box(12, 4, 24, 16), Box(-4, -4, 24, 16)):
        white = np.full((box.height, box.width, 3), 255, np.uint8)
        inside = box.meet(grid.box)
        white[inside.within(box)] = image[inside.within(grid.box)]
        expected = whole[box.within(Box(-4, -4, 24, 16))]
        np.testing.assert_array_equal(mirrored(white, box, grid), expected)
    assert mirrored(image, grid.box, grid) is image
