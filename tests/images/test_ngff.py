"""OME-Zarr: files written by ome-zarr and by Zarr, and hostile metadata."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images import open_slide, read_region
from sparseshot.images.fingerprint import slide_fingerprint

zarr = pytest.importorskip("zarr")
PIXELS = np.random.default_rng(0).integers(0, 256, (260, 330, 3), dtype=np.uint8)


@pytest.fixture(scope="module", params=["0.4", "0.5"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an image by the library of the OME consortium."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ome_zarr")
        from ome_zarr.format import FormatV04, FormatV05
        from ome_zarr.writer import write_image

        path = tmp_path_factory.mktemp("ngff") / f"slide-{request.param}.zarr"
        write_image(
            np.moveaxis(PIXELS, -1, 0),
            str(path),
            axes="cyx",
            fmt=FormatV04() if request.param == "0.4" else FormatV05(),
            scale={"c": 1.0, "y": 0.25, "x": 0.25},
            axes_units={"y": "micrometer", "x": "micrometer"},
            scale_factors=(2,),
            storage_options={"chunks": (1, 100, 128)},
        )
    return path


def test_the_pixels_are_those_that_were_written(written: Path) -> None:
    with open_slide(written) as slide:
        assert (slide.size, slide.mpp, slide.vendor) == ((330, 260), 0.25, "ome-zarr")
        assert len(slide.levels) == 2
        assert (read_region(slide, 0, 0, 330, 260) == PIXELS).all()
        assert (read_region(slide, 90, 80, 60, 50) == PIXELS[80:130, 90:150]).all()
        assert read_region(slide, 0, 0, 80, 60, mpp=1.0).shape == (60, 80, 3)
        first = slide_fingerprint(slide)
    with open_slide(written, mpp=0.5) as slide:
        assert slide.mpp == 0.5
        assert slide_fingerprint(slide) != first


def test_a_damaged_chunk_is_one_place(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.zarr"
    shutil.copytree(written, path)
    folder = path / "s0" if (path / "s0").is_dir() else path / "0"
    chunks = sorted(each for each in folder.rglob("*") if each.is_file() and "z" not in each.name)
    chunks[0].write_bytes(b"\x01" * 50)
    with open_slide(path) as slide:
        with pytest.raises(SlideError, match="cannot be decoded"):
            read_region(slide, 0, 0, 330, 260)
        assert read_region(slide, 0, 0, 330, 260, mpp=0.5).shape


def by_hand(
    folder: Path, pixels: NDArray[Any], *, axes: str, unit: str = "micrometer", version: int = 2
) -> Path:
    """Write an image of one level with Zarr itself."""
    array = zarr.create_array(str(folder / "0"), shape=pixels.shape, dtype=pixels.dtype, zarr_format=version)
    array[:] = pixels
    image = {
        "axes": [{"name": axis, **({"unit": unit} if axis in "yx" else {})} for axis in axes],
        "datasets": [
            {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0] * len(axes)}]}
        ],
        "coordinateTransformations": [{"type": "scale", "scale": [0.5] * len(axes)}],
    }
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / ".zattrs").write_text(json.dumps({"multiscales": [image]}))
    return folder


@pytest.mark.parametrize("axes", ["yx", "tczyx", "cyx"])
def test_grey_and_deep_images_are_read(tmp_path: Path, axes: str) -> None:
    deep = (PIXELS[..., 0].astype(np.uint16) << 8) + 7
    pixels = deep.reshape([1] * (len(axes) - 2) + list(deep.shape))
    with open_slide(by_hand(tmp_path, pixels, axes=axes)) as slide:
        assert slide.mpp == 0.5
        assert (read_region(slide, 0, 0, 330, 260) == PIXELS[..., :1]).all()


def test_a_converted_file_is_its_first_image(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    by_hand(tmp_path / "0", PIXELS[..., 0], axes="yx")
    (tmp_path / ".zattrs").write_text('{"bioformats2raw.layout": 3}')
    with open_slide(tmp_path) as slide:
        assert slide.size == (330, 260)


def test_without_a_unit_the_size_of_a_pixel_is_unknown(tmp_path: Path) -> None:
    by_hand(tmp_path, PIXELS[..., 0], axes="yx", unit="furlong")
    with pytest.raises(SlideError, match="--mpp"):
        open_slide(tmp_path)
    with open_slide(tmp_path, mpp=0.3) as slide:
        assert slide.mpp == 0.3


def in_array(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "0" / ".zarray"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def in_image(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / ".zattrs"
        content = json.loads(path.read_text())
        content["multiscales"][0] |= values
        path.write_text(json.dumps(content))

    return change


def as_text(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / ".zattrs").write_text(text)

    return change


HOSTILE = {
    "pickled objects": (in_array(dtype="|O", filters=[{"id": "pickle"}]), "filters"),
    "a codec that unpickles": (in_array(compressor={"id": "pickle"}), "compressed by 'pickle'"),
    "objects": (in_array(dtype="|O"), "type"),
    "floats": (in_array(dtype="<f4"), "type"),
    "a huge chunk": (in_array(chunks=[10**6, 10**6]), "chunks of"),
    "a huge image": (in_array(shape=[10**15, 10**15]), "array of"),
    "a negative side": (in_array(shape=[-5, 5]), "array of"),
    "a path outside": (in_image(datasets=[{"path": "../../etc"}]), "elsewhere"),
    "an absolute path": (in_image(datasets=[{"path": "/etc"}]), "elsewhere"),
    "an address": (in_image(datasets=[{"path": "https://example.org/slide.zarr"}]), "lacks"),
    "no level": (in_image(datasets=[]), "levels"),
    "many levels": (in_image(datasets=[{"path": "0"}] * 1000), "levels"),
    "other axes": (in_image(axes=[{"name": "a"}, {"name": "b"}]), "axes"),
    "too many axes": (in_image(axes=list("zyx")), "axes"),
    "no datasets": (in_image(datasets=7), "cannot be read"),
    "no JSON": (as_text("{"), "not JSON"),
    "a list": (as_text("[]"), "no object"),
    "a plate": (as_text('{"plate": {}}'), "plate"),
    "a group": (as_text("{}"), "no image"),
    "deep JSON": (as_text("[" * 100_000), "not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_are_refused(tmp_path: Path, name: str) -> None:
    change, message = HOSTILE[name]
    by_hand(tmp_path, PIXELS[..., 0], axes="yx")
    change(tmp_path)
    with pytest.raises(SlideError, match=message):
        open_slide(tmp_path)


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ([{"name": "evil"}], "codec 'evil'"),
        (
            [
                {
                    "name": "sharding_indexed",
                    "configuration": {"chunk_shape": [9, 9], "codecs": [{"name": "evil"}]},
                }
            ],
            "codec",
        ),
        ([{"name": "bytes"}], "chunks of"),
    ],
)
def test_hostile_codecs_are_refused(tmp_path: Path, codecs: list[object], message: str) -> None:
    by_hand(tmp_path, PIXELS[..., 0], axes="yx", version=3)
    path = tmp_path / "0" / "zarr.json"
    content = json.loads(path.read_text())
    content["codecs"] = codecs
    content["chunk_grid"]["configuration"]["chunk_shape"] = [10**6, 10**6]
    path.write_text(json.dumps(content))
    with pytest.raises(SlideError, match=message):
        open_slide(tmp_path)


def test_time_series_are_refused(tmp_path: Path) -> None:
    by_hand(tmp_path, np.zeros((3, 40, 50), np.uint8), axes="tyx")
    with pytest.raises(SlideError, match="one time"):
        open_slide(tmp_path)


def test_another_folder_is_no_slide(tmp_path: Path) -> None:
    with pytest.raises(SlideError, match="is a folder"):
        open_slide(tmp_path)
