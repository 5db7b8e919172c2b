"""``predict --stains hdab --positive``: the percentage of positive cells."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from tests.prediction.networks import ArraySlide, darkness_model, random_detector

from sparseshot.cells import read_cells
from sparseshot.cells.stains import STAINS
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import InputError
from sparseshot.models.kinds import KindHead
from sparseshot.prediction import Model, Throughput, predict_slide, read_prediction
from sparseshot.prediction.cohort import Cohort
from sparseshot.prediction.export import PredictionSummary
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.slides import Outcome

SCORED = Measuring("basic", STAINS["hdab"], positive_od=0.2)


def stained() -> ArraySlide:
    """Make discs of haematoxylin; every fourth has DAB too, as much as its place in the row."""
    pixels = np.full((300, 400, 3), 255, np.uint8)
    rows, columns = np.mgrid[:300, :400]
    for k in range(24):
        amounts = np.array([0.8, 0.7 if k % 4 == 0 else 0.05])
        color = 255 * 10 ** -(amounts @ np.array(STAINS["hdab"].vectors))
        x, y = 40 + 60 * (k % 6), 40 + 60 * (k // 6)
        pixels[np.hypot(rows - y, columns - x) < 8] = color.round()
    return ArraySlide(pixels)


def predicted(folder: Path, measuring: Measuring = SCORED, **settings: object) -> PredictionSummary:
    model = darkness_model(light=0.6)
    return predict_slide(stained(), model, folder, measuring=measuring, only_tissue=False, **settings)  # type: ignore[arg-type]


def test_positive_cells_are_a_class_and_a_percentage(tmp_path: Path) -> None:
    summary = predicted(tmp_path / "a")
    assert summary.counts == {"Negative": 18, "Positive": 6}
    assert (summary.positive["positive"], summary.positive["cells"], summary.positive["percent"]) == (
        6,
        24,
        25,
    )
    assert summary.positive["criterion"] == "mean DAB optical density of at least 0.2"
    cells = read_prediction(tmp_path / "a")
    assert cells.colors == ((112, 112, 225), (250, 62, 62))
    dab = cells.measurements["Nucleus: DAB OD mean"]
    np.testing.assert_array_equal(cells.label == 1, dab >= 0.2)
    page = (tmp_path / "a" / "index.html").read_text()
    assert "25.0 % (6 of 24 cells, by a mean DAB optical density of at least 0.2)" in page
    again = predicted(tmp_path / "a")
    assert again.skipped
    assert again.positive == summary.positive
    (slide,) = Cohort.of([Outcome(tmp_path, summary)]).slides
    assert slide.values["positive %"] == 25


def test_the_threshold_and_the_region_decide(tmp_path: Path) -> None:
    none = predicted(tmp_path / "a", replace(SCORED, positive_od=1.5))
    assert none.counts == {"Negative": 24, "Positive": 0}
    left = predicted(tmp_path / "b", region=shapely.box(0, 0, 70, 300))  # the first column
    assert (left.positive["cells"], left.positive["percent"]) == (4, 50)
    empty = predicted(tmp_path / "c", region=shapely.box(0, 0, 10, 10))
    assert empty.positive["percent"] is None


def test_kinds_are_each_positive_or_negative_and_scored_again_without_the_network(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    head = KindHead(("Other", "Tumour"), weight, np.zeros(2, np.float32))
    checkpoint = replace(random_detector(threshold=0.7, kind_features=6), kinds=head)
    slide, model = SyntheticTissue(seed=4, size_px=(400, 400)), Model.load(checkpoint, device="cpu")
    measuring = replace(SCORED, level="all", positive_od=-1.0)
    small = Throughput(128, threads=1)
    first = predict_slide(slide, model, tmp_path, measuring=measuring, features=True, throughput=small)
    names = ["Other: Negative", "Other: Positive", "Tumour: Negative", "Tumour: Positive"]
    assert list(first.counts) == names
    tumour = first.positive["classes"]["Tumour"]
    assert tumour["positive"] == first.counts["Tumour: Positive"]
    assert tumour["cells"] == first.counts["Tumour: Positive"] + first.counts["Tumour: Negative"]
    higher = replace(measuring, positive_od=5.0)
    second = predict_slide(slide, model, tmp_path, measuring=higher, throughput=small)
    assert second.tiles == 0
    assert second.cells == first.cells
    assert (first.positive["percent"], second.positive["percent"]) == (100, 0)
    assert second.counts["Tumour: Negative"] == first.counts["Tumour: Positive"]


def test_bands_without_cells_are_scored_again_too(tmp_path: Path) -> None:
    checkpoint = random_detector(threshold=0.7, kind_features=6)
    slide = SyntheticTissue(seed=4, size_px=(500, 900), tissue_fraction=0.9)
    model = Model.load(checkpoint, device="cpu")
    region = shapely.box(0, 0, 300, 500)
    asked: dict[str, Any] = {"measuring": SCORED, "region": region, "throughput": Throughput(64)}
    first = predict_slide(slide, model, tmp_path, features=True, **asked)
    assert any(not len(read_cells(path)) for path in (tmp_path / "cells").glob("*.parquet"))
    second = predict_slide(slide, replace(model, threshold=0.75), tmp_path, **asked)
    assert (second.tiles, second.skipped) == (0, False)
    assert 0 < second.cells <= first.cells


def test_what_cannot_be_scored_is_told() -> None:
    with pytest.raises(InputError, match="give --stains hdab"):
        Measuring("basic", STAINS["he"], positive_od=0.2)
    with pytest.raises(InputError, match="leave out --measure none"):
        Measuring("none", STAINS["hdab"], positive_od=0.2)
