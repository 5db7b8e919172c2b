"""Bands found one by one, in any order, settle to the bytes of a prediction in one go."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.prediction.agreement import content
from tests.prediction.networks import ArraySlide, darkness_model, random_detector

from sparseshot.cells import read_cells
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import FormatError
from sparseshot.files import locked
from sparseshot.images.slide import Box, Slide, read_region
from sparseshot.prediction import Model, Throughput, predict_slide
from sparseshot.prediction.bands import find_band, found_band, keep_tissue, kept_tissue, settle_bands
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slide_folder import SlideFolder

PACE = Throughput(batch=3, threads=1)
TISSUE = SyntheticTissue(seed=4, size_px=(700, 830), mpp=0.5, tissue_fraction=0.6)


@pytest.fixture(scope="module")
def detector() -> Model:
    return Model.load(random_detector(threshold=0.7), device="cpu", precision="32")


def claim(slide: Slide, model: Model, folder: Path) -> SlideFolder:
    with locked(folder):
        work = SlideFolder.claim(slide, model, folder, tile_px=64, only_tissue=True, force=False)
        keep_tissue(work)
    return work


def reopened(work: SlideFolder) -> SlideFolder:
    """Return what another process knows of a slide."""
    manifest = Manifest.load(work.folder)
    assert manifest is not None
    return SlideFolder(work.slide, work.model, work.folder, manifest, kept_tissue(work.folder, manifest))


def cases() -> Iterator[tuple[str, Slide]]:
    yield "points", TISSUE
    yield "outlines", TISSUE
    pixels = read_region(TISSUE, 0, 0, 700, 830)
    yield "broken places", ArraySlide(pixels, broken=(Box(200, 330, 210, 340), Box(500, 90, 520, 100)))


@pytest.mark.parametrize(("name", "slide"), list(cases()), ids=lambda each: str(each)[:15])
def test_the_same_bytes_in_any_order(name: str, slide: Slide, detector: Model, tmp_path: Path) -> None:
    model = darkness_model(light=0.3) if name == "outlines" else detector
    whole = predict_slide(slide, model, tmp_path / "whole", tile_px=64, pace=PACE)
    assert whole.cells > 20
    assert bool(whole.broken) == (name == "broken places")
    work = claim(slide, model, tmp_path / "bands")
    assert work.todo == work.bands
    for index in np.random.default_rng(0).permutation(len(work.bands)).tolist():
        other = reopened(work)
        find_band(other, other.bands[index], PACE)
    last = reopened(work)
    settle_bands(last)
    last.export()
    assert content(tmp_path / "bands") == content(tmp_path / "whole")


def test_a_band_counts_once_it_is_whole(detector: Model, tmp_path: Path) -> None:
    work = claim(TISSUE, detector, tmp_path)
    assert len(work.bands) > 3
    first, second = work.bands[:2]
    assert found_band(work, first) is None
    find_band(work, first, PACE)
    found = found_band(work, first)
    assert found is not None
    assert len(read_cells(tmp_path / found.file.name)) > 0
    with pytest.raises(FormatError, match=r"band 1 is gone; run the same command again"):
        settle_bands(work)
    assert [shard.band for shard in work.manifest.shards] == [0]
    find_band(work, second, PACE)
    assert found_band(work, second) is not None
    (tmp_path / found.file.name).write_bytes(b"half of a tab")
    assert found_band(work, first) is None
    next(tmp_path.glob("cells/00001.*.found.json")).write_text("{")
    assert found_band(work, second) is None


def test_a_prediction_in_one_go_continues_after_settled_bands(detector: Model, tmp_path: Path) -> None:
    predict_slide(TISSUE, detector, tmp_path / "whole", tile_px=64, pace=PACE)
    work = claim(TISSUE, detector, tmp_path / "bands")
    for band in work.bands[:4]:
        find_band(work, band, PACE)
    with pytest.raises(FormatError, match="band 4 is gone"):
        settle_bands(work)
    rest = predict_slide(TISSUE, detector, tmp_path / "bands", tile_px=64, pace=PACE)
    assert 0 < rest.tiles < sum(len(window.tiles) for band in work.bands for window in band.windows)
    assert content(tmp_path / "bands") == content(tmp_path / "whole"), "nothing of the bands is left"


def test_another_model_does_not_take_the_bands_for_its_own(detector: Model, tmp_path: Path) -> None:
    work = claim(TISSUE, detector, tmp_path)
    find_band(work, work.bands[0], PACE)
    other = Model.load(random_detector(threshold=0.7, seed=5), device="cpu", precision="32")
    with locked(tmp_path):
        forced = SlideFolder.claim(TISSUE, other, tmp_path, tile_px=64, only_tissue=True, force=True)
    assert not list(tmp_path.glob("cells/*"))
    find_band(work, work.bands[0], PACE)  # by a task that was under way
    assert found_band(forced, forced.bands[0]) is None
