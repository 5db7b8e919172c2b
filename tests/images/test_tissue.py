from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from tests.images import slide_files

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError, OutputError, SlideError, SparseshotWarning
from sparseshot.images import Box, Grid, TileGrid, TissueMask, open_slide, read_region, tissue, tissue_mask
from sparseshot.images.pyramid import PyramidSlide

WIDTH, HEIGHT = 600, 400  # at 8 µm: about 5 × 3 mm
PENS = {"blue": (40, 60, 180), "green": (30, 140, 70), "black": (25, 25, 28)}


def scene(
    *, color: tuple[int, int, int] | None = (226, 180, 206), glass: tuple[int, int, int] = (243, 240, 236)
) -> tuple[Image.Image, NDArray[np.bool_]]:
    """Draw tissue on uneven glass with dust; give it and where the tissue is."""
    rng = np.random.default_rng(0)
    shape = Image.new("L", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(shape)
    if color is not None:
        for x, y, radius in ((175, 200, 100), (240, 170, 75), (450, 120, 50), (475, 300, 20)):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    cover = np.array(shape.filter(ImageFilter.GaussianBlur(2)))[:, :, None] / 255
    pixels = np.array(glass) * (1 - cover) + np.array(color or glass) * cover
    pixels += rng.normal(0, 1.5, pixels.shape) + cover * rng.normal(0, 6, pixels.shape)
    pixels *= np.linspace(1, 0.95, WIDTH)[None, :, None]
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    dust = ImageDraw.Draw(image)
    for x, y in rng.integers(0, 395, (30, 2)).tolist():
        dust.ellipse((x, y, x + 3, y + 3), fill=(120, 118, 116))
    return image, cover[:, :, 0] > 0.5


def opened(tmp_path: Path, image: Image.Image, *, mpp: float = 8.0) -> PyramidSlide:
    image.save(tmp_path / "scene.bmp")
    return open_slide(tmp_path / "scene.bmp", mpp=mpp)


def overlap(found: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    return float((found & truth).sum() / (found | truth).sum())


@pytest.mark.parametrize("color", [(226, 180, 206), (120, 70, 150), (150, 110, 80), (232, 212, 224)])
@pytest.mark.parametrize("glass", [(243, 240, 236), (230, 228, 232), (254, 254, 254)])
def test_tissue_is_distinguished_from_glass(
    tmp_path: Path, color: tuple[int, int, int], glass: tuple[int, int, int]
) -> None:
    image, truth = scene(color=color, glass=glass)
    found = tissue_mask(opened(tmp_path, image))
    assert not (truth & ~found.mask).sum() > 0.01 * truth.sum()
    assert overlap(found.mask, truth) > 0.88  # the rim of 16 µm is added


def test_glass_alone_is_no_tissue(tmp_path: Path) -> None:
    with pytest.warns(SparseshotWarning, match=r"scene\.bmp: no tissue was found.*--everywhere"):
        found = tissue_mask(opened(tmp_path, scene(color=None)[0]))
    assert found.share == 0
    assert not found.mask.any()
    blanks = [Image.new("RGB", (200, 200), (value, value, value)) for value in (255, 240, 128, 0)]
    for blank in (*blanks, scene(color=None)[0].convert("L")):
        with pytest.warns(SparseshotWarning, match="no tissue was found"):
            assert tissue_mask(opened(tmp_path, blank)).share == 0


@pytest.mark.parametrize("color", [(226, 180, 206), (120, 70, 150), (150, 110, 80), (40, 30, 50)])
@pytest.mark.parametrize("light", [1.0, 0.6, 0.25])
def test_without_colour_tissue_is_what_is_dark(
    tmp_path: Path, color: tuple[int, int, int], light: float
) -> None:
    image, truth = scene(color=color)
    found = tissue_mask(opened(tmp_path, image.convert("L").point(lambda value: value * light)))
    assert not (truth & ~found.mask).sum() > 0.01 * truth.sum()
    assert overlap(found.mask, truth) > 0.88


def test_tissue_alone_is_all_tissue(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 15, (200, 200, 3))
    pixels = np.clip(np.array((200, 140, 180)) + noise, 0, 255).astype(np.uint8)
    assert tissue_mask(opened(tmp_path, Image.fromarray(pixels))).share == 1


def test_pen_marks_are_left_out(tmp_path: Path) -> None:
    image, truth = scene()
    lines = Image.new("L", image.size)
    for y, color in zip((15, 340, 380), PENS.values(), strict=True):
        ImageDraw.Draw(image).line((30, y, 500, y - 8), fill=color, width=12)
        ImageDraw.Draw(lines).line((30, y, 500, y - 8), fill=255, width=12)
    ink = np.array(lines) > 0
    slide = opened(tmp_path, image)
    found = tissue_mask(slide).mask
    assert (found & ink).mean() < 0.05 * ink.mean()
    assert overlap(found, truth) > 0.88
    assert (tissue_mask(slide, drop_ink=False).mask & ink).mean() > 0.6 * ink.mean()


def test_specks_go_and_holes_close(tmp_path: Path) -> None:
    image, _ = scene(color=None)
    draw = ImageDraw.Draw(image)
    pink = (220, 160, 190)
    draw.rectangle((100, 100, 300, 300), fill=pink)
    draw.rectangle((150, 150, 180, 180), fill=(243, 240, 236))  # 0.06 mm²
    draw.rectangle((200, 200, 290, 290), fill=(243, 240, 236))  # 0.5 mm²
    draw.rectangle((500, 350, 505, 355), fill=pink)  # 0.002 mm²
    found = tissue_mask(opened(tmp_path, image)).mask
    assert found[165, 165]
    assert not found[245, 245]
    assert not found[320:, 400:].any()


def test_real_slide_with_glass(real_data: Path) -> None:
    with open_slide(real_data / "slides" / "CMU-1-Small-Region.svs") as slide:
        found = tissue_mask(slide)
        assert 0.42 < found.share < 0.50
        assert found.area_mm2 == pytest.approx(found.share * 2220 * 2967 * 0.000499**2)
        scale = found.grid.downsample
        for x, y, is_tissue in ((1200, 1700, True), (800, 2200, True), (1300, 2080, True), (300, 300, False)):
            assert found.mask[int(y / scale), int(x / scale)] == is_tissue
        assert abs(tissue_mask(slide, mpp=4).share - found.share) < 0.03


def test_real_crops_are_all_tissue(real_data: Path) -> None:
    crops = sorted(real_data.glob("tnbc/TNBC_NucleiSegmentation/Slide_*/*.png"))[::5]
    assert len(crops) == 10
    for path in crops:
        assert tissue_mask(open_slide(path, mpp=0.25)).share == 1
    for path in real_data.glob("monusac/*/*.svs"):
        with open_slide(path) as slide:
            assert tissue_mask(slide).share == 1


def test_a_synthetic_slide() -> None:
    slide = SyntheticTissue(seed=1, size_px=(12_000, 10_000), tissue_fraction=0.4)
    found = tissue_mask(slide)
    assert 0.3 < found.share < 0.5
    xy = slide.cells((2000, 2000, 6000, 5000)).xy
    columns, rows = (xy / found.grid.downsample).astype(int).T
    assert found.mask[rows, columns].mean() > 0.99


GRIDS = st.builds(
    TileGrid,
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    tile_px=st.integers(1, 40),
    margin_px=st.integers(0, 20),
)


def touching(tiles: TileGrid, mask: NDArray[np.bool_], mask_px: float) -> list[int]:
    """Return the tiles that a mask of coarse pixels touches."""
    height, width = mask.shape
    found = TissueMask(mask, Grid(width, height, mask_px, 0.5 * mask_px), (tiles.width, tiles.height))
    return [int(index) for index in found.touching(tiles, Grid(tiles.width, tiles.height, 1.0, 0.5))]


@settings(deadline=None)
@given(GRIDS, st.sampled_from([0.5, 1.0, 1.7, 3.0, 8.0, 33.3]), st.data())
def test_touching_equals_a_comparison_of_every_pixel(
    tiles: TileGrid, mask_px: float, data: st.DataObject
) -> None:
    shape = (int(np.ceil(tiles.height / mask_px)), int(np.ceil(tiles.width / mask_px)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    mask = rng.random(shape) < data.draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    want = []
    for tile in tiles:
        x0, y0, x1, y1 = (v / mask_px for v in tile.core)
        rows = [r for r in range(shape[0]) if r < y1 - 1e-9 and r + 1 > y0 + 1e-9]
        columns = [c for c in range(shape[1]) if c < x1 - 1e-9 and c + 1 > x0 + 1e-9]
        if mask[np.ix_(rows, columns)].any():
            want.append(tile.index)
    assert touching(tiles, mask, mask_px) == want


def test_a_mask_of_a_large_slide_costs_little() -> None:
    tiles = TileGrid(250_000, 250_000, tile_px=512)
    mask = np.zeros((7813, 7813), bool)
    mask[100, 100] = mask[-1, -1] = True
    assert touching(tiles, mask, 32.0) == [6 * tiles.columns + 6, len(tiles) - 1]


def test_covering_and_tiles_agree(tmp_path: Path) -> None:
    image, _ = scene()
    slide = opened(tmp_path, image)
    found = tissue_mask(slide)
    for mpp in (8.0, 3.3, 20.0):
        grid = Grid.over(slide, mpp)
        tiles = TileGrid(grid.width, grid.height, tile_px=50, margin_px=10)
        touched = found.touching(tiles, grid).tolist()
        assert 0 < len(touched) < len(tiles)
        assert touched == [tile.index for tile in tiles if found.covers(tile.core, grid)]
    assert not found.covers(Box(-50, -50, -10, -10), grid)
    assert not found.covers(Box(5000, 5000, 6000, 6000), grid)


def test_share_counts_the_cut_pixels_at_the_edges(tmp_path: Path) -> None:
    grid = Grid.of((100, 50), 1.0, 30.0)
    mask = np.zeros((2, 4), bool)
    mask[1, 3] = True  # 10 × 20 of 100 × 50 pixels
    found = TissueMask(mask, grid, (100, 50), np.zeros((2, 4, 3), np.uint8))
    assert found.share == pytest.approx(0.04)
    assert found.area_mm2 == pytest.approx(200e-6)


def test_a_large_slide_is_read_in_strips_into_a_bounded_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    class Huge(SyntheticTissue):
        largest = 0

        def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
            Huge.largest = max(Huge.largest, box.width * box.height)
            return np.full((box.height, box.width, 3), (220, 160, 190), np.uint8)

    monkeypatch.setattr(tissue, "_MAX_PIXELS", 2**20)
    found = tissue_mask(Huge(size_px=(250_000, 250_000)))
    assert found.share == 1
    assert found.mask.size <= 1.05 * 2**20
    assert found.overview is not None
    assert found.overview.shape[0] <= 2048
    assert Huge.largest <= 64 * found.mask.shape[1]


def test_what_cannot_be_read_counts_as_tissue(tmp_path: Path) -> None:
    glass = np.full((2400, 2400, 3), 240, np.uint8)
    path = slide_files.write_pyramid(tmp_path / "a.tif", glass, codec="jpeg-rgb", levels=(1,), mpp=1.0)
    slide_files.corrupt_tile(path, column=10, row=20)
    with open_slide(path) as slide:
        with pytest.raises(SlideError):
            read_region(slide, 640, 1280, 64, 64)
        found = tissue_mask(slide)
    assert found.mask[1312 // 8, 672 // 8]
    assert 0 < found.share < 0.02


def test_the_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    found = tissue_mask(opened(tmp_path, scene()[0]))
    found.write_picture(tmp_path / "tissue.png")
    picture = np.array(Image.open(tmp_path / "tissue.png"))
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert (picture[200, 175] > 150).all()  # tissue as it is
    assert (picture == (0, 160, 0)).all(axis=2).any()
    assert picture[5, 5].max() < 200  # glass is greyed
    with pytest.raises(OutputError):
        found.write_picture(tmp_path / "nowhere" / "tissue.png")
    assert "% of the slide" in repr(found)


def test_a_wrong_pixel_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mpp is 0"):
        tissue_mask(opened(tmp_path, scene()[0]), mpp=0)


def test_a_mask_tells_of_every_place_of_another_grid() -> None:
    mask = np.array([[False, True, False], [False, False, True]])
    found = TissueMask(mask, Grid(3, 2, 32.0, 16.0), (96, 64))
    fine = Grid(48, 32, 2.0, 1.0)
    np.testing.assert_array_equal(
        found.at(np.arange(48) + 0.5, np.arange(32) + 0.5, fine), np.kron(mask, np.ones((16, 16), bool))
    )
    np.testing.assert_array_equal(found.at(np.array([-5.0, 500.0]), np.array([31.0]), fine), [[False, True]])


def test_everywhere_is_all_tissue_unread() -> None:
    slide = SyntheticTissue(size_px=(3000, 1000))
    found = TissueMask.everywhere(slide)
    assert (found.share, found.overview) == (1, None)
    assert found.area_mm2 == pytest.approx(3000 * 1000 * 0.25e-3**2)
    grid = Grid.over(slide, 0.5)
    tiles = TileGrid(grid.width, grid.height, 100)
    assert len(found.touching(tiles, grid)) == len(tiles)
    assert found.at(np.array([0.5, 1499.5]), np.array([0.5, 499.5]), grid).all()
    with pytest.raises(InputError, match="no picture"):
        found.picture()
