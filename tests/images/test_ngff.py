"""OME-Zarr: files written by ome-zarr and by Zarr, and hostile metadata."""

import json
import os
import shutil
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import limited

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
    with open_slide(written, mpp=0.5, force_mpp=True) as slide:
        assert slide.mpp == 0.5
        assert slide_fingerprint(slide) != first


def test_a_damaged_chunk_is_one_place(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.zarr"
    shutil.copytree(written, path)
    folder = path / "s0" if (path / "s0").is_dir() else path / "0"
    first_chunk(folder).write_bytes(b"\x01" * 50)
    with open_slide(path) as slide:
        with pytest.raises(SlideError, match="cannot be decoded"):
            read_region(slide, 0, 0, 330, 260)
        assert read_region(slide, 0, 0, 330, 260, mpp=0.5).shape


@pytest.mark.parametrize("version", [2, 3])
def test_an_absent_chunk_is_one_place_unless_absent_is_white(tmp_path: Path, version: int) -> None:
    layout: dict[str, Any] = {"axes": "yx", "version": version, "chunks": (512, 512)}
    pixels = np.tile(PIXELS[:256, :256, 0], (4, 4))
    for fill in (0, 255):
        path = by_hand(tmp_path / str(fill), pixels, fill_value=fill, **layout)
        first_chunk(path / "0").unlink()
        with open_slide(path) as slide:
            assert (read_region(slide, 512, 512, 512, 512) == pixels[512:, 512:, None]).all()
            if fill == 255:
                assert (read_region(slide, 0, 0, 512, 512) == 255).all()
                continue
            with pytest.raises(SlideError, match=r"the chunk at x 0, y 0 .*its file .* is missing"):
                read_region(slide, 0, 0, 512, 512)


def first_chunk(folder: Path) -> Path:
    return min(each for each in folder.rglob("*") if each.is_file() and "z" not in each.name)


def by_hand(
    folder: Path,
    pixels: NDArray[Any],
    *,
    axes: str,
    unit: str = "micrometer",
    version: int = 2,
    **layout: Any,
) -> Path:
    """Write an image of one level with Zarr itself."""
    array = zarr.create_array(
        str(folder / "0"), shape=pixels.shape, dtype=pixels.dtype, zarr_format=version, **layout
    )
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
    "a codec that unpickles": (in_array(compressor={"id": "pickle"}), "codec 'pickle'"),
    "objects": (in_array(dtype="|O"), "type"),
    "floats": (in_array(dtype="<f4"), "type"),
    "a huge chunk": (in_array(chunks=[10**6, 10**6]), "chunks of"),
    "narrow chunks": (in_array(shape=[2**20, 600], chunks=[2**20, 1]), "blocks of"),
    "a long image": (in_array(shape=[5, 2**21]), "array of"),
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


BYTES = {"name": "bytes"}


def sharded(*chunk_shape: int, codec: str = "bytes", index: str = "bytes") -> dict[str, Any]:
    inner = {"chunk_shape": chunk_shape, "codecs": [{"name": codec}], "index_codecs": [{"name": index}]}
    return {"name": "sharding_indexed", "configuration": inner}


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ([{"name": "evil"}], "codec 'evil'"),
        ([sharded(9, 9, codec="evil")], "codec 'evil'"),
        ([sharded(9, 9, codec="sharding_indexed")], "codec 'sharding_indexed'"),
        ([sharded(9, 9, index="gzip")], "codec 'gzip'"),
        ([sharded(100, 100), {"name": "gzip"}], "around its shards"),
        ([sharded(10, 10)], "indices of shards"),
        ([BYTES], "chunks of"),
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


COMPRESSORS = ("Blosc", "Zlib", "GZip", "Zstd", "LZ4", "BZ2", "LZMA")
CODECS = ("BloscCodec", "GzipCodec", "ZstdCodec")


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *((name, {}) for name in COMPRESSORS + CODECS),
        *((name, {"chunks": (100, 100), "shards": (300, 400)}) for name in CODECS),
        *((name, {"chunks": (300, 400), "shards": (300, 400)}) for name in CODECS),
    ],
)
def test_chunks_are_unpacked_to_their_size_only(tmp_path: Path, name: str, layout: dict[str, Any]) -> None:
    """Write a correct image, then one whose metadata state smaller chunks than there are."""
    is_new = name in CODECS
    codec = getattr(zarr.codecs, name)() if is_new else getattr(pytest.importorskip("numcodecs"), name)()
    layout = layout | {"version": 3 if is_new else 2, "compressors": codec}
    by_hand(tmp_path / "whole", PIXELS[..., 0], axes="yx", **layout)
    with open_slide(tmp_path / "whole") as slide:
        assert (read_region(slide, 0, 0, 330, 260) == PIXELS[..., :1]).all()
    layout |= {key: tuple(8 * side for side in layout[key]) for key in ("chunks", "shards") if key in layout}
    large = np.zeros((3000, 4000), np.uint8)
    large[::500, ::500] = 1  # chunks without any value are not stored
    by_hand(tmp_path / "bomb", large, axes="yx", **{"chunks": large.shape} | layout)
    for kind in (".zarray", "zarr.json"):
        if (tmp_path / "whole" / "0" / kind).exists():
            shutil.copy(tmp_path / "whole" / "0" / kind, tmp_path / "bomb" / "0" / kind)
    with (
        open_slide(tmp_path / "bomb") as slide,
        pytest.raises(SlideError, match="unpacks to more than the"),
    ):
        read_region(slide, 0, 0, 330, 260)


def test_a_chunk_of_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    part = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    by_hand(tmp_path, PIXELS[..., 0], axes="yx", version=3, compressors=zarr.codecs.GzipCodec())
    first_chunk(tmp_path / "0").write_bytes(start + part * 500)
    (found,) = limited.outcomes("tests.images.hostile_files:read_slide", [tmp_path]).values()
    assert "unpacks to more than the" in found


def test_a_blosc_chunk_that_is_cut_off(tmp_path: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    by_hand(tmp_path, PIXELS[..., 0], axes="yx", compressors=numcodecs.Blosc())
    chunk = first_chunk(tmp_path / "0")
    whole = chunk.read_bytes()
    for length in (0, 10, 20, len(whole) - 1):
        chunk.write_bytes(whole[:length])
        with open_slide(tmp_path) as slide, pytest.raises(SlideError, match="cannot be decoded"):
            read_region(slide, 0, 0, 330, 260)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_endless_files_are_not_read(tmp_path: Path) -> None:
    by_hand(tmp_path, PIXELS[..., 0], axes="yx", compressors=None)
    chunk = first_chunk(tmp_path / "0")
    with chunk.open("r+b") as file:
        file.truncate(2**40)
    with open_slide(tmp_path) as slide, pytest.raises(SlideError, match="read at once"):
        read_region(slide, 0, 0, 330, 260)
    chunk.unlink()
    os.mkfifo(chunk)
    with open_slide(tmp_path) as slide, pytest.raises(SlideError, match="not a file"):
        read_region(slide, 0, 0, 330, 260)


def test_time_series_are_refused(tmp_path: Path) -> None:
    by_hand(tmp_path, np.zeros((3, 40, 50), np.uint8), axes="tyx")
    with pytest.raises(SlideError, match="one time"):
        open_slide(tmp_path)


def test_another_folder_is_no_slide(tmp_path: Path) -> None:
    with pytest.raises(SlideError, match="is a folder"):
        open_slide(tmp_path)
