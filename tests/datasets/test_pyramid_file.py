"""Pyramids: OpenSlide reads what was written, and nothing half-written stays behind."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import openslide
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.errors import InputError, OutputError, SlideError
from sparseshot.images import Box, Grid, open_slide, read_region
from sparseshot.work import Event

TISSUE = SyntheticTissue(seed=3, size_px=(1503, 1101), mpp=0.25)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyramid") / "slide.tif"
    write_pyramid(TISSUE, path, tile_px=256, quality=90)
    return path


def test_openslide_reads_it_back(written: Path) -> None:
    with openslide.OpenSlide(written) as slide:
        assert slide.level_dimensions == ((1503, 1101), (752, 551), (376, 276), (188, 138))
        assert float(slide.properties[openslide.PROPERTY_NAME_MPP_X]) == 0.25
        assert float(slide.properties[openslide.PROPERTY_NAME_MPP_Y]) == 0.25
        for level, (width, height) in enumerate(slide.level_dimensions):
            image = np.asarray(slide.read_region((0, 0), level, (width, height)).convert("RGB"))
            truth = read_region(TISSUE, 0, 0, width, height, mpp=0.25 * 2**level)
            assert np.abs(image.astype(int) - truth).mean() < 5, "JPEG loses a little"
            assert np.abs(image.mean(axis=(0, 1)) - truth.mean(axis=(0, 1))).max() < 0.5


def test_our_own_reader_reads_it_back_at_any_size(written: Path) -> None:
    with open_slide(written) as slide:
        assert slide.size == TISSUE.size
        assert slide.mpp == 0.25
        for mpp in (0.25, 0.5, 0.8):
            image = read_region(slide, 300, 200, 150, 100, mpp=mpp).astype(float)
            truth = read_region(TISSUE, 300, 200, 150, 100, mpp=mpp)
            assert np.abs(image - truth).mean() < 6


def test_it_is_a_tiled_bigtiff_that_tells_where_it_comes_from(written: Path) -> None:
    with tifffile.TiffFile(written) as file:
        assert file.is_bigtiff
        pages: list[Any] = list(file.pages)
        assert [page.is_tiled for page in pages] == [True] * 4
        assert [bool(page.subfiletype) for page in pages] == [False, True, True, True]
        assert pages[0].description == "synthetic-3"
        assert pages[0].software == "sparseshot"


def test_a_name_beyond_ascii(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "Präparat 5 µm.png")
    with open_slide(tmp_path / "Präparat 5 µm.png", mpp=0.25) as slide:
        write_pyramid(slide, tmp_path / "a.tif", tile_px=128)
    with openslide.OpenSlide(tmp_path / "a.tif") as written:
        assert "Präparat 5 µm" in written.properties["tiff.ImageDescription"]


@pytest.mark.parametrize("mpp", [0.2527, 0.5, 1.0, 0.1])
def test_mpp_survives(tmp_path: Path, mpp: float) -> None:
    write_pyramid(replace(TISSUE, size_px=(300, 200), mpp=mpp), tmp_path / "a.tiff", tile_px=128)
    with openslide.OpenSlide(tmp_path / "a.tiff") as slide:
        assert float(slide.properties[openslide.PROPERTY_NAME_MPP_X]) == pytest.approx(mpp, rel=1e-6)


def test_threads_do_not_change_the_bytes_and_progress_counts_tiles(tmp_path: Path) -> None:
    seen: list[Event] = []
    small = replace(TISSUE, size_px=(700, 500))
    write_pyramid(small, tmp_path / "1.tif", tile_px=256, threads=1)
    write_pyramid(small, tmp_path / "4.tif", tile_px=256, threads=4, report=seen.append)
    assert (tmp_path / "1.tif").read_bytes() == (tmp_path / "4.tif").read_bytes()
    assert [(event.done, event.total) for event in seen] == [(n, 9) for n in range(1, 10)]


@dataclass(frozen=True)
class Failing(SyntheticTissue):
    """A slide of which one tile cannot be read."""

    error: Exception | None = None

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        if self.error and box.x0 == 512:
            raise self.error
        return super().read(grid, box)


@pytest.mark.parametrize("error", [OSError("no such tile"), SlideError("a.svs", "no such tile")])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "slide.tif"
    path.write_bytes(b"old")
    with pytest.raises(type(error), match="no such tile"):
        write_pyramid(Failing(size_px=(2000, 600), error=error), path, tile_px=256)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.tif"):
        write_pyramid(TISSUE, tmp_path / "slide.png")
    with pytest.raises(InputError, match="tile_px is 100"):
        write_pyramid(TISSUE, tmp_path / "slide.tif", tile_px=100)
    with pytest.raises(InputError, match="quality is 0"):
        write_pyramid(TISSUE, tmp_path / "slide.tif", quality=0)
    with pytest.raises(OutputError, match="does not exist"):
        write_pyramid(TISSUE, tmp_path / "nowhere" / "slide.tif")
    assert not list(tmp_path.iterdir())
