"""The starter: how it is made, and what the shipped one is worth."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
import torch
from PIL import Image

from sparseshot.cells import Cells
from sparseshot.cli import main
from sparseshot.datasets import Dataset, load_dataset
from sparseshot.datasets.synthetic import SyntheticTissue, varied_tissue, write_pyramid
from sparseshot.errors import InputError
from sparseshot.images import Box
from sparseshot.models.config import STARTER_NAMES
from sparseshot.models.model_files import load_model, load_starter
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.evaluation import evaluate
from sparseshot.training.starter import make_starter

SLIDE = SyntheticTissue(seed=11, size_px=(700, 600), mpp=0.5, tissue_fraction=1.0)
SMALL = SyntheticTissue(seed=11, size_px=(400, 300), mpp=0.5, tissue_fraction=1.0)


@pytest.mark.parametrize("name", STARTER_NAMES)
def test_the_shipped_starter_finds_the_cells_of_a_slide_it_has_not_seen(name: str) -> None:
    starter = load_model(name)
    image = AnnotatedSlide(SLIDE, SLIDE.cells(outlines=True))
    evaluation = evaluate(starter, [image])
    assert evaluation.calibrated is not None
    assert evaluation.calibrated.pooled > 0.8
    torch.manual_seed(0)  # some random weights happen to prefer dark pixels
    untrained = replace(starter, weights=starter.config.make_task().network().state_dict())
    assert evaluate(untrained, [image]).best.pooled < 0.5


def test_a_starter_is_made_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseshot.training.starter._SIZE_PX", 128)
    monkeypatch.setattr("sparseshot.training.starter._HELD_OUT", 2)
    first = make_starter("detect", tmp_path, slides=2, steps=2)
    assert first.threshold is not None
    assert 0 < first.threshold < 1
    again = make_starter("detect", tmp_path, slides=2, steps=2)  # only loaded
    assert again.threshold == first.threshold
    read = load_starter("detect", path=tmp_path / "detect.safetensors")
    assert read.threshold == first.threshold
    assert (read.config.start, read.config.loss) == ("scratch", "ce")


def test_a_starter_learns_from_real_sets_but_not_from_those_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparseshot.training.starter._SIZE_PX", 128)
    monkeypatch.setattr("sparseshot.training.starter._HELD_OUT", 2)
    asked = []

    def load(name: str, root: Path, *, split: str) -> Dataset:
        asked.append((name, split))
        return load_dataset("wbc_zheng", root, split="train")

    monkeypatch.setattr("sparseshot.training.starter.load_dataset", load)
    folder = tmp_path / "wbc_zheng" / "Dataset 1"
    folder.mkdir(parents=True)
    mask = np.zeros((96, 96), np.uint8)
    mask[30:60, 30:60], mask[40:50, 40:50] = 128, 255
    Image.fromarray(mask).save(folder / "001.png")
    Image.fromarray(np.full((96, 96, 3), 200, np.uint8)).save(folder / "001.bmp")
    made = make_starter(
        "detect", tmp_path / "a", slides=2, steps=2, data=tmp_path, without=["TNBC", "sbu-miccai", "dsb2018"]
    )
    assert asked == [("brca_m2c", "train"), ("brca_m2c", "validation")]
    assert made.config.kinds == ("lymphocyte", "tumour", "stromal")
    assert made.weights["kind_head.weight"].shape == (3, 64)
    with pytest.raises(InputError, match="monuseg is not learned from"):
        make_starter("detect", tmp_path / "c", slides=2, steps=1, without=["monuseg"])


def test_a_segmenter_outlines_cells_around_their_points(tmp_path: Path) -> None:
    tissue = varied_tissue(7, 1, size_px=256, mpp=0.5)
    every = tissue.cells(outlines=True)
    item = AnnotatedSlide(tissue, every)
    starter = load_starter("segment")
    region = item.look_at(starter.network(), starter.config, threshold=0.5)
    outline = region.finder.outlines_around(region.window, region.parts, every.xy)  # type: ignore[attr-defined]
    seen = ~shapely.is_missing(outline)
    assert every.outline is not None
    assert seen.mean() > 0.7
    assert shapely.dwithin(outline[seen], shapely.points(every.xy[seen]), 1.5).all()
    assert shapely.area(shapely.intersection(outline[seen], every.outline[seen])).sum() > 0.6 * (
        shapely.area(every.outline[seen]).sum()
    )
    assert shapely.area(outline[seen]).sum() == pytest.approx(shapely.union_all(outline[seen]).area)


def test_the_starter_predicts_without_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pyramid(SMALL, tmp_path / "slide.tif")
    assert main(["predict", "starter", str(tmp_path / "slide.tif"), "--out", str(tmp_path / "found")]) == 0
    said = capsys.readouterr()
    assert "learned from other tissue" in said.err
    found = next((tmp_path / "found").rglob("*.parquet"))
    assert found.stat().st_size > 0


def test_few_steps_from_the_starter_beat_many_from_scratch(tmp_path: Path) -> None:
    from sparseshot.training import TrainConfig, TrainingData, train_run

    write_pyramid(SMALL, tmp_path / "slide.tif")
    cells = SMALL.cells()
    cells[np.arange(0, len(cells), 5)].write(tmp_path / "marks.geojson")
    data = TrainingData(pairs=((tmp_path / "slide.tif", tmp_path / "marks.geojson"),))
    truth = [AnnotatedSlide(SMALL, cells)]
    scores = {}
    for start, steps in (("starter", 5), ("scratch", 20)):
        config = TrainConfig(task="detect", start=start, steps=steps, validations=1, classes=())
        checkpoint = train_run(config, data, tmp_path / start)
        scores[start] = evaluate(checkpoint, truth).best.pooled
    assert scores["starter"] > scores["scratch"] + 0.1


def test_a_detector_finds_the_same_in_a_part_as_in_the_whole() -> None:
    """Detections are suppressed by their neighbours outside too."""
    starter = load_starter("detect")
    item, network = AnnotatedSlide(SLIDE, SLIDE.cells()), starter.network()
    whole = item.look_at(network, starter.config, threshold=0.1).cells
    for x, y in np.random.default_rng(0).integers(40, 380, (20, 2)).tolist():
        box = Box(x, y, x + 200, y + 200)
        part = item.look_at(network, starter.config, threshold=0.1, box=box).cells.crop(*box)
        np.testing.assert_allclose(np.sort(part.xy, axis=0), np.sort(whole.crop(*box).xy, axis=0), atol=1e-3)


def test_a_small_region_of_a_large_slide_needs_little_memory() -> None:
    slide = SyntheticTissue(seed=3, size_px=(16_000, 16_000), mpp=0.5)
    marks = Cells([[100, 100]], mpp=0.5, regions=np.array([shapely.box(50, 50, 150, 150)], object))
    tracemalloc.start()
    try:
        evaluate(load_starter("detect"), [AnnotatedSlide(slide, marks)])
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
