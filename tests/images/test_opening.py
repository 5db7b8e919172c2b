import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image
from tests.images import slide_files

from sparseshot.errors import DataNotFoundError, InputError, SlideError, SparseshotWarning
from sparseshot.images import Box, Grid, open_slide, read_region
from sparseshot.images.opening import OpenSlideFile
from sparseshot.images.pyramid import PyramidSlide
from sparseshot.images.tiff import TiledTiff

IMAGE = slide_files.tissue(403, 301)
CODECS = ["none", "deflate", "deflate-predicted", "jpeg-rgb", "jpeg-ycbcr"]
LOSSLESS = {"none": 0, "deflate": 0, "deflate-predicted": 0, "jpeg-rgb": 8, "jpeg-ycbcr": 60}
WRITERS: dict[str, Callable[[Path], Path]] = {
    "pyramid.tif": lambda p: slide_files.write_pyramid(p, IMAGE),
    "big.tif": lambda p: slide_files.write_pyramid(p, IMAGE, bigtiff=True),
    "aperio.svs": lambda p: slide_files.write_aperio(p, IMAGE, codec="none"),
    "interleaved.ome.tif": lambda p: slide_files.write_ome(p, IMAGE),
    "planes.ome.tif": lambda p: slide_files.write_ome(p, IMAGE, axes="CYX"),
    "separate.ome.tif": lambda p: slide_files.write_ome(p, IMAGE, axes="SYX"),
}


def of_openslide(path: Path) -> PyramidSlide:
    return slide_files.by_openslide(path)


@pytest.fixture
def without_imagecodecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.mark.parametrize("name", WRITERS)
def test_every_layout_is_read_with_its_levels_and_mpp(tmp_path: Path, name: str) -> None:
    with open_slide(WRITERS[name](tmp_path / name)) as slide:
        assert slide.name == name
        assert slide.size == (403, 301)
        assert slide.mpp == pytest.approx(0.25)
        assert len(slide.levels) == 3
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)
        np.testing.assert_array_equal(read_region(slide, 0, 0, 100, 75, mpp=1), slide_files.reduced(IMAGE, 4))


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_decoded_to_the_bytes_of_openslide(tmp_path: Path, codec: str) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, codec=codec)
    with open_slide(path) as ours, of_openslide(path) as theirs:
        assert isinstance(ours, TiledTiff)
        assert np.abs(read_region(ours, 0, 0, 403, 301).astype(int) - IMAGE).max() <= LOSSLESS[codec]
        np.testing.assert_array_equal(read_region(ours, 0, 0, 403, 301), read_region(theirs, 0, 0, 403, 301))


def test_real_slides_are_read_as_by_openslide(real_data: Path) -> None:
    slides = sorted(real_data.rglob("*.svs"))
    assert len(slides) >= 7
    for path in slides:
        with open_slide(path) as ours, of_openslide(path) as theirs:
            assert ours.vendor == "aperio"
            assert 0.25 <= ours.mpp <= 0.5
            size = tuple(min(n, 900) for n in ours.size)
            one, other = (read_region(slide, 0, 0, *size) for slide in (ours, theirs))
            # Two builds of OpenJPEG round one value in a million differently.
            assert np.abs(one.astype(int) - other).max() <= 1
            assert (one != other).mean() < 1e-5


def test_a_plain_image_is_a_slide_of_one_level(tmp_path: Path) -> None:
    Image.fromarray(IMAGE).save(tmp_path / "crop.png")
    with open_slide(tmp_path / "crop.png", mpp=0.25) as slide:
        assert slide.levels == ((403, 301),)
        np.testing.assert_array_equal(read_region(slide, 10, 20, 30, 40), IMAGE[20:60, 10:40])
        np.testing.assert_array_equal(read_region(slide, 0, 0, 100, 75, mpp=1), slide_files.reduced(IMAGE, 4))


def test_a_stripped_tiff_is_a_plain_image(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, resolution=(20000, 20000), resolutionunit="CENTIMETER")
    with open_slide(tmp_path / "a.tif") as slide:
        assert (slide.vendor, slide.mpp) == ("image", 0.5)
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


def test_what_a_printer_would_print_is_not_a_pixel_size(tmp_path: Path) -> None:
    Image.fromarray(IMAGE).save(tmp_path / "a.png", dpi=(72, 72))
    with pytest.raises(SlideError, match=r"does not state its pixel size; give it in µm with --mpp 0\.25"):
        open_slide(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_resolution_of_an_image_is_used_where_it_is_a_microscopes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # also where Pillow alone would refuse
    Image.fromarray(IMAGE).save(tmp_path / name, dpi=(50800, 50800))
    with open_slide(tmp_path / name) as slide:
        assert slide.mpp == pytest.approx(0.5, rel=1e-3)


def test_imagej_writes_pixels_per_micron(tmp_path: Path) -> None:
    tifffile.imwrite(
        tmp_path / "a.tif", IMAGE, imagej=True, resolution=(4, 4), metadata={"unit": "um", "axes": "YXS"}
    )
    with open_slide(tmp_path / "a.tif") as slide:
        assert slide.mpp == pytest.approx(0.25)


def test_a_given_mpp_does_not_replace_what_a_file_states(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, mpp=0.499)
    with (
        pytest.warns(SparseshotWarning, match=r"a\.tif states 0\.499 µm per pixel, .* add --force-mpp"),
        open_slide(path, mpp=0.25) as slide,
    ):
        assert slide.mpp == pytest.approx(0.499)
    with open_slide(path, mpp=0.5) as slide:  # the same, rounded
        assert slide.mpp == pytest.approx(0.499)
    with open_slide(path, mpp=0.25, force_mpp=True) as slide:
        assert slide.mpp == 0.25
        assert slide.stated_mpp == pytest.approx(0.499)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="give µm per pixel"):
            open_slide(path, mpp=wrong)


def test_no_pixel_size_in_a_slide(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, mpp=None)
    with pytest.raises(SlideError, match=r"a\.tif: the file does not state .* mpp=0\.25"):
        open_slide(path)
    with open_slide(path, mpp=0.3) as slide:
        assert slide.mpp == 0.3


def test_missing_folder_and_nonsense(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="no such slide"):
        open_slide(tmp_path / "none.svs")
    with pytest.raises(SlideError, match="is a folder"):
        open_slide(tmp_path)
    (tmp_path / "text.svs").write_text("hello")
    with pytest.raises(SlideError, match="not an image of a known format"):
        open_slide(tmp_path / "text.svs")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE)

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(
        SlideError, match=r"a\.tif: cannot be read \(Permission denied\); check its permissions"
    ):
        open_slide(path)


def test_an_ome_tiff_of_many_channels_is_refused_not_shown_by_halves(tmp_path: Path) -> None:
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        np.zeros((5, 128, 128), np.uint8),
        tile=(64, 64),
        photometric="minisblack",
        metadata={"axes": "CYX"},
    )
    with pytest.raises(SlideError, match=r"axes C 5, Y 128, X 128; export one plane"):
        open_slide(tmp_path / "a.ome.tif", mpp=0.25)


def test_an_ome_tiff_without_tiles_is_read_whole(tmp_path: Path) -> None:
    metadata = {"axes": "YXS", "PhysicalSizeX": 0.25, "PhysicalSizeY": 0.25}
    tifffile.imwrite(tmp_path / "a.ome.tif", IMAGE, photometric="rgb", metadata=metadata)
    with open_slide(tmp_path / "a.ome.tif") as slide:
        assert slide.mpp == 0.25
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


@pytest.mark.parametrize("axes", ["SYX", "CYX"])
def test_an_ome_tiff_of_planes_without_tiles_is_read_whole(tmp_path: Path, axes: str) -> None:
    path = slide_files.write_ome(tmp_path / "a.ome.tif", IMAGE, axes=axes, levels=(1,), tiled=False)
    with open_slide(path) as slide:
        assert slide.mpp == 0.25
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_channels_without_tiles_are_not_taken_for_colours(tmp_path: Path, channels: int) -> None:
    planes = np.zeros((channels, 40, 50), np.uint8)
    tifffile.imwrite(tmp_path / "a.ome.tif", planes, photometric="minisblack", metadata={"axes": "CYX"})
    with pytest.raises(SlideError, match=r"axes are CYX.*export one plane|axes C \d.*export one plane"):
        open_slide(tmp_path / "a.ome.tif", mpp=0.25)


@pytest.mark.parametrize("mpp", [1e-9, 1e9, 0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_pixel_size_is_refused(tmp_path: Path, mpp: float) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE)
    with pytest.raises(InputError, match="mpp is"):
        open_slide(path, mpp=mpp)


@pytest.mark.parametrize("magnification", [10, 20, 40])
def test_a_magnification_is_not_taken_for_a_pixel_size(tmp_path: Path, magnification: float) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, mpp=None)
    with open_slide(path, mpp=magnification) as slide, pytest.raises(InputError, match="40x is about"):
        Grid.over(slide, 0.5)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16])
@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_values_of_unknown_range_are_refused_not_shown_black(
    tmp_path: Path, dtype: type[np.integer], tile: tuple[int, int] | None
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", IMAGE[:, :, 0].astype(dtype), tile=tile)
    with pytest.raises(SlideError, match=r"a\.tif"), open_slide(tmp_path / "a.tif", mpp=0.25) as slide:
        read_region(slide, 0, 0, 10, 10)


@pytest.mark.usefixtures("without_imagecodecs")
def test_a_codec_that_is_not_installed_is_named(tmp_path: Path) -> None:
    path = slide_files.write_ome(tmp_path / "a.ome.tif", IMAGE, axes="CYX")
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages.first.tags["Compression"].overwrite(50001)
    with pytest.raises(
        SlideError, match="compressed by WEBP, which needs another reader: pip install imagecodecs"
    ):
        open_slide(path)


@pytest.mark.parametrize("codec", ["jpeg-rgb", "jpeg-ycbcr", "jpeg2000"])
def test_a_tile_that_claims_to_be_huge_is_not_decoded(tmp_path: Path, codec: str) -> None:
    huge = np.zeros((1000, 3000, 3), np.uint8)
    pack = slide_files.PACKERS[codec][0]
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        tiles = iter([pack(huge)] * 4)
        writer.write(
            tiles, shape=(128, 128, 3), dtype=np.uint8, tile=(64, 64), photometric="rgb", compression="zlib"
        )
    slide_files.declare(path, codec)
    with (
        open_slide(path, mpp=0.25) as slide,
        pytest.raises(SlideError, match="a tile of 64 × 64 pixels holds an image of 3000 × 1000"),
    ):
        read_region(slide, 0, 0, 10, 10)


def test_jpeg_2000_is_read_and_its_truncation_seen(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, codec="jpeg2000")
    with open_slide(path) as slide:
        assert isinstance(slide, TiledTiff)
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)
    with tifffile.TiffFile(path, mode="r+") as file:
        counts = file.pages.first.tags["TileByteCounts"]
        counts.overwrite([counts.value[0] // 2, *counts.value[1:]])
    with open_slide(path) as slide:
        with pytest.raises(SlideError, match="tile at x 0, y 0"):
            read_region(slide, 0, 0, 10, 10)
        np.testing.assert_array_equal(read_region(slide, 64, 0, 300, 301), IMAGE[:, 64:364])


@pytest.mark.parametrize("codec", ["lzw", "zstd", "webp"])
def test_imagecodecs_is_used_where_it_is_installed(tmp_path: Path, codec: str) -> None:
    pytest.importorskip("imagecodecs", reason="imagecodecs is not needed and not installed")
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, tile=(64, 64), photometric="rgb", compression=codec)
    with open_slide(tmp_path / "a.tif", mpp=0.25) as slide:
        assert isinstance(slide, TiledTiff)
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


@pytest.mark.usefixtures("without_imagecodecs")
def test_a_tiled_tiff_of_another_codec_goes_through_openslide(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    slide_files.write_pyramid(path, IMAGE, codec="lzw")
    with open_slide(path) as slide:
        assert isinstance(slide, OpenSlideFile)
        assert slide.mpp == pytest.approx(0.25)
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


@pytest.mark.usefixtures("without_imagecodecs")
def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, tile=(64, 64), photometric="rgb", compression="lzma")
    with pytest.raises(
        SlideError, match=r"a\.tif: cannot be opened .*compressed by LZMA.*pip install imagecodecs"
    ):
        open_slide(path, mpp=0.25)


def test_sixteen_bits_keep_the_high_byte(tmp_path: Path) -> None:
    deep = IMAGE.astype(np.uint16) * 257
    tifffile.imwrite(
        tmp_path / "a.tif",
        deep,
        tile=(64, 64),
        photometric="rgb",
        byteorder=">",
        compression="zlib",
        predictor=True,
    )
    with open_slide(tmp_path / "a.tif", mpp=0.25) as slide:
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)


def test_tiles_that_were_never_written_are_white(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, levels=(1,))
    with tifffile.TiffFile(path, mode="r+") as file:
        tag = file.pages.first.tags["TileByteCounts"]
        tag.overwrite([0, *tag.value[1:]])
    with open_slide(path) as slide:
        got = read_region(slide, 0, 0, 128, 64)
        assert (got[:, :64] == 255).all()
        np.testing.assert_array_equal(got[:, 64:], IMAGE[:64, 64:128])


def test_labels_and_macros_are_not_levels(tmp_path: Path) -> None:
    path = tmp_path / "a.svs"
    text = slide_files.APERIO.format(w=403, h=301, mpp=0.25)
    with tifffile.TiffWriter(path) as writer:
        slide_files.write_level(writer, IMAGE, codec="none", description=text, metadata=None)
        writer.write(slide_files.tissue(90, 90), photometric="rgb", description="Aperio label", metadata=None)
        wide = slide_files.tissue(300, 70)
        slide_files.write_level(writer, wide, codec="none", description="Aperio macro", metadata=None)
    with open_slide(path) as slide:
        assert slide.levels == ((403, 301),)


@pytest.mark.parametrize("opened", [open_slide, of_openslide], ids=["tiff", "openslide"])
@pytest.mark.parametrize("codec", ["jpeg-rgb", "jpeg-ycbcr"])
def test_a_corrupt_tile_is_named_and_the_rest_is_read(
    tmp_path: Path, codec: str, opened: Callable[[Path], PyramidSlide]
) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, codec=codec)
    with open_slide(path) as slide:
        whole = read_region(slide, 0, 0, 403, 301)
    slide_files.corrupt_tile(path, column=2, row=1)
    with opened(path) as slide:
        for _ in range(3):
            with pytest.raises(SlideError, match=r"a\.tif: the (tile|region) at x 128, y 64 .*copy it again"):
                read_region(slide, 128, 64, 64, 64)
            np.testing.assert_array_equal(read_region(slide, 0, 0, 128, 301), whole[:, :128])
            np.testing.assert_array_equal(read_region(slide, 192, 0, 211, 301), whole[:, 192:])


@pytest.mark.parametrize("opened", [open_slide, of_openslide], ids=["tiff", "openslide"])
def test_threads_read_the_same_bytes_while_one_tile_is_corrupt(
    tmp_path: Path, opened: Callable[[Path], PyramidSlide]
) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, codec="jpeg-rgb")
    with open_slide(path) as slide:
        whole = read_region(slide, 0, 0, 403, 301)
    slide_files.corrupt_tile(path, column=2, row=1)
    places = [(x, y) for y in range(0, 240, 32) for x in range(0, 350, 32)] * 4
    touched = {(x, y) for x, y in places if 128 - 50 < x < 192 and 64 - 50 < y < 128}

    def bad(place: tuple[int, int]) -> bool:
        x, y = place
        try:
            return not np.array_equal(read_region(slide, x, y, 50, 50), whole[y : y + 50, x : x + 50])
        except SlideError:
            return True

    with opened(path) as slide, ThreadPoolExecutor(8) as pool:
        wrong = {place for place, is_bad in zip(places, pool.map(bad, places), strict=True) if is_bad}
    assert wrong == touched


@pytest.mark.parametrize(
    ("bounds", "offset"),
    [
        ({"x": "40", "y": "24", "width": "300", "height": "200"}, (40, 24, 300, 200)),
        ({"x": "40", "y": "24"}, (0, 0, 400, 300)),
        ({"x": "200", "y": "24", "width": "300", "height": "200"}, (0, 0, 400, 300)),
    ],
)
def test_places_count_from_the_corner_of_what_was_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, str], offset: tuple[int, int, int, int]
) -> None:
    image = IMAGE[:300, :400]
    path = slide_files.write_pyramid(tmp_path / "a.tif", image, levels=(1, 4))
    properties = {**openslide.OpenSlide(path).properties}
    properties |= {f"openslide.bounds-{name}": value for name, value in bounds.items()}
    monkeypatch.setattr(openslide.OpenSlide, "properties", properties)
    x, y, width, height = offset
    with of_openslide(path) as slide:
        assert slide.size == (width, height)
        assert slide.downsamples == (1.0, 4.0)
        np.testing.assert_array_equal(
            read_region(slide, 0, 0, width, height), image[y : y + height, x : x + width]
        )
        coarse = slide_files.reduced(image, 4)[y // 4 : y // 4 + 40, x // 4 : x // 4 + 50]
        np.testing.assert_array_equal(read_region(slide, 0, 0, 50, 40, mpp=1), coarse)


def test_what_was_not_scanned_is_white(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE)
    rgba = np.zeros((10, 10, 4), np.uint8)
    rgba[:5] = (10, 20, 30, 255)
    monkeypatch.setattr(openslide.OpenSlide, "read_region", lambda *_: Image.fromarray(rgba))
    with of_openslide(path) as slide:
        got = read_region(slide, 0, 0, 10, 10)
    assert got[0, 0].tolist() == [10, 20, 30]
    assert (got[5:] == 255).all()


def test_levels_of_odd_sizes_do_not_depend_on_where_a_read_begins(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", slide_files.tissue(1623, 1111), levels=(1, 4))
    pyramid = OpenSlideFile(path)
    assert openslide.OpenSlide(path).level_downsamples[1] != 4  # the case that OpenSlide interpolates
    whole = pyramid.read_level(1, Box(0, 0, 405, 277))
    for box in (Box(1, 1, 50, 60), Box(100, 120, 300, 260), Box(127, 128, 405, 277), Box(300, 200, 301, 201)):
        np.testing.assert_array_equal(pyramid.read_level(1, box), whole[box.y0 : box.y1, box.x0 : box.x1])


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # on the way to giving up
def test_absurd_sizes_do_not_reach_openslide_which_would_end_the_process(tmp_path: Path) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", IMAGE, codec="jpeg-rgb", levels=(1,))
    with tifffile.TiffFile(path, mode="r+") as file:
        for tag in ("TileWidth", "TileLength"):
            file.pages.first.tags[tag].overwrite(60_000)
    assert openslide.OpenSlide.detect_format(path) == "generic-tiff"
    with pytest.raises(SlideError, match=r"its tiles are 60000 × 60000 pixels"):
        open_slide(path, mpp=0.25)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_broken_files_of_every_kind_give_a_slide_error(tmp_path: Path) -> None:
    """Truncate and scramble directories: an error of ours, or a slide; never another exception."""
    rng = np.random.default_rng(3)
    sound = slide_files.write_aperio(tmp_path / "sound.svs", slide_files.tissue(130, 100)).read_bytes()
    ome = slide_files.write_ome(tmp_path / "sound.ome.tif", slide_files.tissue(130, 100)).read_bytes()
    path = tmp_path / "broken.tif"
    opened = 0
    for source in (sound, ome):
        for trial in range(120):
            data = bytearray(source)
            if trial % 3 == 0:
                data = data[: rng.integers(4, len(data))]
            else:
                start = rng.integers(4, 300) if trial % 3 == 1 else rng.integers(4, len(data) - 8)
                data[start : start + 4] = rng.bytes(4)
            path.write_bytes(data)
            try:
                with open_slide(path, mpp=0.25) as slide:
                    read_region(slide, 0, 0, 50, 50)
                    opened += 1
            except SlideError:
                pass
    assert 20 < opened < 220


def test_a_name_that_is_not_utf8_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.tif")
    slide_files.write_pyramid(path, IMAGE)
    with open_slide(path) as slide:
        assert slide.name == "caf\ufffd.tif"
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)
    with slide_files.by_openslide(path) as slide:
        np.testing.assert_array_equal(read_region(slide, 0, 0, 403, 301), IMAGE)
    path.write_bytes(b"no slide")
    with pytest.raises(SlideError) as raised:
        open_slide(path)
    str(raised.value).encode()
