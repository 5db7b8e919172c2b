from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from sparseshot.errors import DataNotFoundError, SlideError
from sparseshot.images import plain_image, read_image

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (40, 50, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_lossless_formats_give_the_pixels(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(RGB).save(tmp_path / f"a{suffix}")
    read = read_image(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(read, RGB)
    assert read.flags.writeable
    assert read.flags.c_contiguous


def test_jpeg_is_near(tmp_path: Path) -> None:
    smooth = np.full((40, 50, 3), (200, 100, 150), np.uint8)
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(read_image(tmp_path / "a.jpg").astype(int) - smooth).max() <= 3


def test_transparent_is_white_and_half_is_half(tmp_path: Path) -> None:
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 128]]], np.uint8)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").tolist() == [[[10, 20, 30], [255, 255, 255], [127, 127, 127]]]


def test_grey_palette_bilevel_and_cmyk(tmp_path: Path) -> None:
    grey = RGB[:, :, 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png"), np.dstack([grey] * 3))
    palette = Image.fromarray(RGB).quantize(16)
    palette.save(tmp_path / "palette.png")
    np.testing.assert_array_equal(read_image(tmp_path / "palette.png"), np.array(palette.convert("RGB")))
    palette.save(tmp_path / "clear.png", transparency=0)
    assert (read_image(tmp_path / "clear.png")[np.array(palette) == 0] == 255).all()
    Image.fromarray(grey > 128).save(tmp_path / "bilevel.png")
    np.testing.assert_array_equal(read_image(tmp_path / "bilevel.png")[:, :, 1], (grey > 128) * np.uint8(255))
    Image.new("CMYK", (4, 4)).save(tmp_path / "ink.tif")
    assert (read_image(tmp_path / "ink.tif") == 255).all()


@pytest.mark.parametrize("shape", [(40, 50), (40, 50, 3)])
def test_of_sixteen_bits_the_high_byte_is_kept(tmp_path: Path, shape: tuple[int, ...]) -> None:
    deep = RNG.integers(0, 2**16, shape, dtype=np.uint16)
    tifffile.imwrite(tmp_path / "deep.tif", deep)
    want = np.broadcast_to((deep >> 8).reshape(40, 50, -1), (40, 50, 3))
    np.testing.assert_array_equal(read_image(tmp_path / "deep.tif"), want)
    if len(shape) == 2:
        Image.fromarray(deep).save(tmp_path / "deep.png")
        np.testing.assert_array_equal(read_image(tmp_path / "deep.png"), want)


def test_planar_sixteen_bit_tiff(tmp_path: Path) -> None:
    deep = RGB.astype(np.uint16) << 8
    tifffile.imwrite(
        tmp_path / "planes.tif", np.moveaxis(deep, -1, 0), photometric="rgb", planarconfig="separate"
    )
    np.testing.assert_array_equal(read_image(tmp_path / "planes.tif"), RGB)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp"])
def test_truncated_names_the_file_and_the_cure(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    Image.fromarray(RGB).save(file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(SlideError, match=rf"a\{suffix}: cannot be decoded .*copy it again"):
        read_image(file)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's, before it gives up
def test_a_tiff_that_no_reader_knows(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\0" + b"\xff" * 100)
    with pytest.raises(SlideError, match="the file is damaged"):
        read_image(tmp_path / "a.tif")


def test_no_image_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("hello")
    with pytest.raises(SlideError, match="not an image of a known format"):
        read_image(tmp_path / "a.png")
    (tmp_path / "empty.png").touch()
    with pytest.raises(SlideError, match="is empty"):
        read_image(tmp_path / "empty.png")
    with pytest.raises(DataNotFoundError, match="no such image"):
        read_image(tmp_path / "missing.png")
    with pytest.raises(SlideError):
        read_image(tmp_path)


def test_float_values_have_no_range(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "f.tif", np.zeros((4, 4), np.float32))
    with pytest.raises(SlideError, match="no known range"):
        read_image(tmp_path / "f.tif")


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp", ".jpg"])
def test_above_pillows_limit_but_below_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow alone would refuse 2000 pixels
    Image.fromarray(RGB).save(tmp_path / f"a{suffix}")
    assert read_image(tmp_path / f"a{suffix}").shape == RGB.shape
    assert Image.MAX_IMAGE_PIXELS == 100
    monkeypatch.setattr(plain_image, "MAX_PIXELS", 100)
    with pytest.raises(SlideError, match="50 × 40 pixels are more than the 100"):
        read_image(tmp_path / f"a{suffix}")


def test_pillows_limit_is_back_when_the_last_thread_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.fromarray(RGB).save(tmp_path / "a.tif")
    with ThreadPoolExecutor(8) as pool:
        shapes = list(pool.map(lambda _: read_image(tmp_path / "a.tif").shape, range(200)))
    assert set(shapes) == {RGB.shape}
    assert Image.MAX_IMAGE_PIXELS == 100
