from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.images import slide_files

from sparseshot.cells import Cells
from sparseshot.errors import InputError, SlideError
from sparseshot.images import Box, Grid, open_slide, pyramid, read_region
from sparseshot.images.pyramid import PyramidSlide, downsamples
from sparseshot.images.slide import Slide, snapped

WIDTH, HEIGHT, MPP = 403, 301, 0.25
IMAGE = slide_files.tissue(WIDTH, HEIGHT)


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PyramidSlide]]:
    """Return one slide by each reader, with levels of 1, 1/4 and 1/16 of a size that they do not divide."""
    folder = tmp_path_factory.mktemp("slides")
    path = slide_files.write_pyramid(folder / "a.tif", IMAGE)
    Image.fromarray(IMAGE).save(folder / "a.png")
    opened = [
        open_slide(path),
        slide_files.by_openslide(path),
        open_slide(folder / "a.png", mpp=MPP),
    ]
    yield opened
    for slide in opened:
        slide.close()


@settings(deadline=None, max_examples=80)
@given(data=st.data(), mpp=st.one_of(st.sampled_from([0.25, 0.5, 0.2527, 1, 4, 0.125]), st.floats(0.1, 9)))
def test_a_tile_equals_its_part_of_a_larger_read(
    slides: list[PyramidSlide], data: st.DataObject, mpp: float
) -> None:
    slide = data.draw(st.sampled_from(slides))
    grid = Grid.over(slide, mpp)
    reach = 5  # also beyond the slide
    whole = slide.read(grid, Box(-reach, -reach, grid.width + reach, grid.height + reach))
    assert whole.shape == (grid.height + 2 * reach, grid.width + 2 * reach, 3)
    x0 = data.draw(st.integers(-reach, grid.width + reach - 1))
    y0 = data.draw(st.integers(-reach, grid.height + reach - 1))
    x1 = data.draw(st.integers(x0 + 1, grid.width + reach))
    y1 = data.draw(st.integers(y0 + 1, grid.height + reach))
    tile = slide.read(grid, Box(x0, y0, x1, y1))
    np.testing.assert_array_equal(tile, whole[y0 + reach : y1 + reach, x0 + reach : x1 + reach])


def test_outside_is_white_and_the_last_pixel_is_not_mixed_with_it(slides: list[PyramidSlide]) -> None:
    for slide in slides:
        got = read_region(slide, -10, -10, WIDTH + 20, HEIGHT + 20)
        np.testing.assert_array_equal(got[10:-10, 10:-10], IMAGE)
        got[10:-10, 10:-10] = 255
        assert (got == 255).all()
        assert (read_region(slide, 5000, 5000, 4, 4) == 255).all()
    dark = slides[2]
    grid = Grid.over(dark, 1.0)
    last = dark.read(grid, Box(grid.width - 1, 0, grid.width, 1))[0, 0]
    mean = IMAGE[:4, 400:403].mean(axis=(0, 1))  # the fourth column lies outside
    assert np.abs(last - mean).max() < 40


@pytest.mark.parametrize(
    ("mpp", "n"), [(0.25, 1), (0.2527, 1), (0.5, 2), (0.505, 2), (0.75, 3), (1.0, 4), (2.0, 8)]
)
def test_whole_ratios_are_exact_means(slides: list[PyramidSlide], mpp: float, n: int) -> None:
    for slide in (slides[0], slides[2]):
        by_level = n == 8 and len(slide.levels) > 1  # the level of 1/4 serves, whose means are means of means
        want = (
            slide_files.reduced(slide_files.reduced(IMAGE, 4), 2)
            if by_level
            else slide_files.reduced(IMAGE, n)
        )
        height, width = want.shape[:2]
        np.testing.assert_array_equal(read_region(slide, 0, 0, width, height, mpp=mpp), want)


def test_the_level_just_finer_is_read(slides: list[PyramidSlide], monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []
    inner = slides[0]
    read = inner.read_level

    def noting(level: int, box: Box) -> NDArray[np.uint8]:
        levels.append(level)
        return read(level, box)

    monkeypatch.setattr(inner, "read_level", noting)
    for mpp in (0.2, 0.25, 0.9, 1.0, 3.9, 4.0, 30.0):
        read_region(slides[0], 0, 0, 4, 4, mpp=mpp)
    assert levels == [0, 0, 0, 1, 1, 2, 2]


def test_levels_agree_about_where_things_are(slides: list[PyramidSlide]) -> None:
    """A wish of a coarse level and one that is averaged down from level 0 show the same picture."""
    for slide in slides[:2]:
        coarse = read_region(slide, 0, 0, 100, 75, mpp=1)
        fine = read_region(slides[2], 0, 0, 100, 75, mpp=1)
        assert np.abs(coarse.astype(int) - fine).mean() < 1.5


def test_positions_move_to_the_nearest_grid_pixel(slides: list[PyramidSlide]) -> None:
    slide = slides[0]
    expected = read_region(slide, 8, 0, 5, 5, mpp=1.0)
    for x in (9.0, 7.0, 10.0 - 1e-9):
        np.testing.assert_array_equal(read_region(slide, x, 0, 5, 5, mpp=1.0), expected)
    assert not np.array_equal(read_region(slide, 10.1, 0, 5, 5, mpp=1.0), expected)


def test_a_grid_finds_its_own_pixels_at_any_ratio() -> None:
    for mpp in np.random.default_rng(0).uniform(0.1, 9, 50):
        grid = Grid.of((250_000, 250_000), 0.2513, float(mpp))
        again = Grid.of((250_000, 250_000), 0.2513, grid.mpp)
        assert again == grid
        columns = np.arange(0, grid.width, 997)
        assert [round(c * grid.downsample / grid.downsample) for c in columns] == columns.tolist()


@settings(deadline=None)
@given(st.floats(0.01, 100))
def test_snapping_moves_by_at_most_two_per_cent_and_only_once(ratio: float) -> None:
    near = snapped(ratio)
    assert abs(near / ratio - 1) <= 0.0205
    assert snapped(near) == pytest.approx(near, rel=1e-12)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64])
@settings(deadline=None)
@given(width=st.integers(200, 250_000), height=st.integers(200, 250_000))
def test_levels_made_by_halving_have_whole_downsamples(n: int, width: int, height: int) -> None:
    for level in ((width // n, height // n), (-(-width // n), -(-height // n))):
        assert downsamples([(width, height), level]) == (1.0, float(n))


def test_thumbnail_covers_everything_by_pieces(
    slides: list[PyramidSlide], monkeypatch: pytest.MonkeyPatch
) -> None:
    for slide in slides:
        whole = slide.thumbnail(100)
        assert whole.shape == (75, 100, 3)
        with monkeypatch.context() as patch:
            patch.setattr(pyramid, "_PIECE_PX", 900)
            np.testing.assert_array_equal(slide.thumbnail(100), whole)
        assert slide.thumbnail(10_000).shape == (HEIGHT, WIDTH, 3)
        assert slide.thumbnail(1).shape == (1, 1, 3)
        with pytest.raises(InputError, match="max_px is 0"):
            slide.thumbnail(0)


def test_many_threads_read_the_same_bytes(slides: list[PyramidSlide]) -> None:
    boxes = [Box(x, y, x + 60, y + 45) for y in range(0, 150, 13) for x in range(0, 200, 17)] * 3
    for slide in slides:
        grid = Grid.over(slide, 0.4)
        whole = slide.read(grid, grid.box)
        with ThreadPoolExecutor(8) as pool:
            tiles = list(pool.map(slide.read, [grid] * len(boxes), boxes))
        for box, tile in zip(boxes, tiles, strict=True):
            want = np.full((box.height, box.width, 3), 255, np.uint8)
            part = whole[box.y0 : box.y1, box.x0 : box.x1]
            want[: part.shape[0], : part.shape[1]] = part
            np.testing.assert_array_equal(tile, want)


def test_bad_wishes(slides: list[PyramidSlide]) -> None:
    slide = slides[0]
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="give µm per pixel"):
            read_region(slide, 0, 0, 5, 5, mpp=wrong)
    with pytest.raises(InputError, match=r"a\.tif: a region of 0 × 5 pixels"):
        read_region(slide, 0, 0, 0, 5)


def test_a_closed_slide_says_so(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE)
    makers: list[Callable[[Path], PyramidSlide]] = [
        open_slide,
        slide_files.by_openslide,
    ]
    for maker in makers:
        slide: Slide = maker(path)
        with slide:
            read_region(slide, 0, 0, 5, 5)
        with pytest.raises(SlideError, match="has been closed; open it again"):
            read_region(slide, 0, 0, 5, 5)


@given(downsample=st.floats(0.3, 40), xy=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))))
def test_level0_and_back(downsample: float, xy: list[tuple[float, float]]) -> None:
    grid = Grid(10, 10, downsample, 0.25 * downsample)
    places = np.array(xy).reshape(-1, 2)
    np.testing.assert_allclose(grid.from_level0(grid.to_level0(places)), places, rtol=1e-12, atol=1e-9)
    square = shapely.transform(shapely.box(1, 2, 3, 4), grid.to_level0)
    np.testing.assert_allclose(square.bounds, grid.to_level0(Box(1, 2, 3, 4)))


def test_cells_are_drawn_into_a_box_as_into_the_whole_grid() -> None:
    random = np.random.default_rng(3)
    grid = Grid.of((200, 160), 0.25, 0.4)
    cells = Cells(random.uniform((0, 0), (200, 160), (40, 2)))
    whole, box = grid.rasterise(cells, grid.box, by="instance"), Box(-4, 20, 70, 120)
    inside = box.meet(grid.box)
    drawn = grid.rasterise(cells, box, by="instance")
    np.testing.assert_array_equal(drawn[inside.within(box)], whole[inside.within(grid.box)])
