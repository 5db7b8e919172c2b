"""How a TIFF stores its pixels does not change the slide."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images import open_slide, read_region
from sparseshot.images.plain_image import read_image

RNG = np.random.default_rng(0)
RGB = RNG.integers(120, 256, (90, 130, 3), dtype=np.uint8)
LAYOUTS = pytest.mark.parametrize("tile", [(32, 48), None], ids=["tiles", "strips"])


def shown(path: Path, pixels: NDArray[Any], **options: Any) -> NDArray[np.uint8]:
    tifffile.imwrite(path, pixels, **options)
    with open_slide(path, mpp=0.5) as slide:
        return read_region(slide, 0, 0, *slide.size)


@LAYOUTS
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_not_applied(tmp_path: Path, tile: Any, orientation: int) -> None:
    tags = [(274, "H", 1, orientation, True)]
    read = shown(tmp_path / "a.tif", RGB, tile=tile, photometric="rgb", extratags=tags)
    assert (read == RGB).all()


@LAYOUTS
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_an_unspecified_fourth_channel_is_left_out(tmp_path: Path, tile: Any, dtype: type) -> None:
    pixels: NDArray[Any] = np.concatenate([RGB, np.zeros_like(RGB[:, :, :1])], axis=2).astype(dtype)
    if dtype is np.uint16:
        pixels <<= 8
    read = shown(tmp_path / "a.tif", pixels, tile=tile, photometric="rgb", extrasamples=["unspecified"])
    assert (read == RGB).all()
    read = shown(tmp_path / "b.tif", pixels, tile=tile, photometric="rgb", extrasamples=["unassalpha"])
    assert (read == 255).all()


@LAYOUTS
@pytest.mark.parametrize("shift", [0, 4, 8])
def test_zero_is_white_where_the_file_says_so(tmp_path: Path, tile: Any, shift: int) -> None:
    grey = RGB[:, :, 0]
    pixels = (255 - grey) if shift == 0 else (255 - grey).astype(np.uint16) << shift
    read = shown(tmp_path / "a.tif", pixels, tile=tile, photometric="miniswhite")
    assert (read == grey[:, :, None]).all()


@LAYOUTS
@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_values_of_a_camera_are_scaled_by_the_bits_in_use(tmp_path: Path, tile: Any, bits: int) -> None:
    deep = RGB.astype(np.uint16) << (bits - 8)
    assert (shown(tmp_path / "a.tif", deep, tile=tile, photometric="rgb") == RGB).all()
    grey = shown(tmp_path / "b.tif", deep[:, :, 0], tile=tile, photometric="minisblack")
    assert (grey == RGB[:, :, :1]).all()


def test_the_bits_in_use_are_those_of_the_whole_slide(tmp_path: Path) -> None:
    pixels = np.full((64, 4096, 3), 500, np.uint16)
    pixels[:, -64:] = 4000
    read = shown(tmp_path / "a.tif", pixels, tile=(64, 64), photometric="rgb")
    assert read[0, 0].tolist() == [500 >> 4] * 3


DARK = RNG.integers(0, 12, (3, 90, 130), dtype=np.uint8)
BRIGHT = np.ascontiguousarray(np.moveaxis(RGB, 2, 0))


@LAYOUTS
def test_three_channels_of_fluorescence_are_not_colours(tmp_path: Path, tile: Any) -> None:
    options = {"tile": tile, "photometric": "minisblack"}
    colors = {"axes": "CYX", "Channel": {"Name": ["Red", "Green", "Blue"]}}
    assert (shown(tmp_path / "a.ome.tif", BRIGHT, metadata=colors, **options) == RGB).all()
    assert (shown(tmp_path / "b.ome.tif", BRIGHT, metadata={"axes": "CYX"}, **options) == RGB).all()
    stains = {"axes": "CYX", "Channel": {"Name": ["DAPI", "FITC", "Cy3"]}}
    with pytest.raises(SlideError, match=r"look like fluorescence.*named DAPI, FITC, Cy3; export"):
        shown(tmp_path / "c.ome.tif", BRIGHT, metadata=stains, **options)
    with pytest.raises(SlideError, match=r"look like fluorescence.*the image is dark"):
        shown(tmp_path / "d.ome.tif", DARK, metadata={"axes": "CYX"}, **options)
    waves = {"axes": "CYX", "Channel": {"EmissionWavelength": [460, 520, 600]}}
    with pytest.raises(SlideError, match="look like fluorescence"):
        shown(tmp_path / "e.ome.tif", BRIGHT, metadata=waves, **options)


def test_an_empty_file_is_named_so(tmp_path: Path) -> None:
    for name in ("a.svs", "a.png", "a.tif"):
        (tmp_path / name).touch()
        with pytest.raises(SlideError, match=r"is empty \(0 bytes\); copy it again"):
            open_slide(tmp_path / name, mpp=0.5)
        with pytest.raises(SlideError, match="is empty"):
            read_image(tmp_path / name)
