"""Where to mark next."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from tests.prediction.networks import ArraySlide, random_detector
from tests.training.blobs import blobs

from sparseshot.active import suggest_regions, write_suggestions
from sparseshot.cells import Cells, read_cells
from sparseshot.errors import InputError
from sparseshot.models.kinds import OTHER, KindHead
from sparseshot.prediction import Model, predict_slide
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.work import Event

SIDE_UM = 32.0


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(random_detector(threshold=0.5), device="cpu")


def named(name: str, *, seed: int = 0, size: int = 512) -> tuple[ArraySlide, Cells]:
    slide, cells = blobs(seed, size=size, count=200 * (size // 512) ** 2)
    return ArraySlide(slide.pixels, name=name), cells


def test_regions_are_spread_over_slides_and_apart(model: Model) -> None:
    slides = [named("a")[0], named("b", seed=1)[0]]
    suggestions = suggest_regions(model, slides, regions=8, side_um=SIDE_UM)
    assert len(suggestions) == 8
    assert {each.slide for each in suggestions} == {"a", "b"}
    assert max(sum(each.slide == name for each in suggestions) for name in "ab") <= 6
    for name in "ab":
        own = [each.region for each in suggestions if each.slide == name]
        assert not any(one.intersects(other) for i, one in enumerate(own) for other in own[:i])
        assert all(region.area == pytest.approx((SIDE_UM / 0.5) ** 2) for region in own)
    assert all(each.reason for each in suggestions)
    again = suggest_regions(model, slides, regions=8, side_um=SIDE_UM)
    assert again == suggestions


def test_nothing_is_suggested_in_exhaustive_regions(model: Model) -> None:
    slide, cells = named("a")
    half = shapely.box(0, 0, 512, 256)
    marked = AnnotatedSlide(slide, Cells(cells.xy[:50], mpp=0.5, regions=[half]))
    for each in suggest_regions(model, [slide], regions=6, side_um=SIDE_UM, learned=[marked]):
        assert not each.region.intersection(half).area
    everything = replace(marked, marks=Cells([[1, 1]], mpp=0.5, regions=[shapely.box(0, 0, 512, 512)]))
    with pytest.raises(InputError, match="no tissue is left"):
        suggest_regions(model, [slide], side_um=SIDE_UM, learned=[everything])
    other, _ = named("a", seed=1)  # another slide of that name has other regions
    assert suggest_regions(model, [other], regions=2, side_um=SIDE_UM, learned=[everything])


def test_what_is_unlike_the_marks_comes_first(model: Model) -> None:
    slide, cells = named("a")
    slide.pixels[256:, 256:] = np.random.default_rng(0).integers(60, 160, (256, 256, 3))  # of another kind
    marked = AnnotatedSlide(slide, cells[(cells.xy < 200).any(axis=1)])
    suggestions = suggest_regions(model, [slide], regions=4, side_um=SIDE_UM, learned=[marked])
    x0, y0, _, _ = suggestions[0].box
    assert min(x0, y0) >= 192
    assert {each.kind for each in suggestions} & {"unlike anything marked", "uncertain"}


def of_kinds(bias: tuple[float, ...], *, scale: float = 0.0) -> Model:
    """A model of kinds a and b, whose logits are the biases and a little of random features."""
    weight = (scale * np.random.default_rng(0).normal(size=(3, 6))).astype(np.float32)
    head = KindHead((OTHER, "a", "b"), weight, np.array(bias, np.float32))
    return Model.load(replace(random_detector(threshold=0.5, kind_features=6), kinds=head), device="cpu")


def marked_as(cells: Cells, *label: int) -> Cells:
    return replace(cells[: len(label)], outline=None, classes=("a", "b"), label=np.array(label, np.int16))


def test_kinds_that_are_undecided_are_named() -> None:
    slide, cells = named("a")
    item = AnnotatedSlide(slide, marked_as(cells, *[0, 1] * 8))
    model = of_kinds((-9.0, 0.0, 0.0), scale=1.0)
    found = suggest_regions(model, [slide], regions=6, side_um=SIDE_UM, learned=[item])
    undecided = [each.reason for each in found if each.kind == "undecided kinds"]
    assert undecided
    assert all(each == "many cells here may be a or b" for each in undecided)
    sure = suggest_regions(of_kinds((-9.0, 0.0, 9.0)), [slide], regions=6, side_um=SIDE_UM, learned=[item])
    assert "undecided kinds" not in {each.kind for each in sure}


def test_a_kind_with_few_marks_is_named_and_other_is_not_one() -> None:
    slide, cells = named("a")
    item = AnnotatedSlide(slide, marked_as(cells, *[0] * 30, 1))
    for bias, is_rare in (((-9.0, 0.0, 0.0), True), ((9.0, 0.0, -9.0), False)):
        model = of_kinds(bias, scale=1.0 if is_rare else 0.0)
        found = suggest_regions(model, [slide], regions=6, side_um=SIDE_UM, learned=[item])
        reasons = [each.reason for each in found if each.kind == "rare class"]
        assert bool(reasons) == is_rare
        assert all(each.endswith("a rare kind: b, with 1 mark") for each in reasons)


def test_cells_unlike_any_marked_one_come_first() -> None:
    slide, cells = named("a")
    slide.pixels[256:, 256:] = np.random.default_rng(0).integers(60, 160, (256, 256, 3))
    item = AnnotatedSlide(slide, marked_as(cells[(cells.xy < 200).any(axis=1)], *[0, 1] * 25))
    model = of_kinds((-9.0, 0.0, 9.0))
    found = suggest_regions(model, [slide], regions=4, side_um=SIDE_UM, learned=[item])
    assert min(found[0].box[:2]) >= 192
    assert any("unlike any that was marked" in each.reason for each in found)


def test_few_candidates_bound_the_work(model: Model) -> None:
    slide, _ = named("a", size=1024)
    seen: list[Event] = []
    suggest_regions(model, [slide], regions=3, side_um=SIDE_UM, candidates=10, report=seen.append)
    assert (seen[-1].done, seen[-1].total) == (10, 10)


def test_a_prediction_is_used_again(model: Model, tmp_path: Path) -> None:
    slide, _ = named("a", size=1024)
    predict_slide(slide, model, tmp_path / "found")
    seen: list[Event] = []
    found = {"a": tmp_path / "found"}
    suggestions = suggest_regions(model, [slide], regions=2, side_um=SIDE_UM, found=found, report=seen.append)
    assert len(suggestions) == 2
    assert seen[-1].total == 20  # of 256 squares
    other, _ = named("a", seed=5, size=512)
    with pytest.raises(InputError, match="another slide"):
        suggest_regions(model, [other], regions=2, found=found, side_um=SIDE_UM)
    with pytest.raises(InputError, match="no finished prediction"):
        suggest_regions(model, [slide], regions=2, found={"a": tmp_path}, side_um=SIDE_UM)


def test_qupath_reads_name_and_description(model: Model, tmp_path: Path) -> None:
    slide, _ = named("a")
    suggestions = suggest_regions(model, [slide], regions=3, side_um=SIDE_UM)
    write_suggestions(tmp_path / "next.geojson", suggestions)
    features = json.loads((tmp_path / "next.geojson").read_text())["features"]
    for number, (feature, each) in enumerate(zip(features, suggestions, strict=True), 1):
        properties = feature["properties"]
        assert properties["objectType"] == "annotation"
        assert properties["name"] == f"{number}: {each.kind}"
        assert properties["metadata"]["ANNOTATION_DESCRIPTION"] == each.reason
    cells = read_cells(tmp_path / "next.geojson")
    assert cells.counts() == {"Suggested": 3}


def test_bad_requests(model: Model) -> None:
    with pytest.raises(InputError, match="no slides"):
        suggest_regions(model, [])
    with pytest.raises(InputError, match="5 regions of 3 candidates"):
        suggest_regions(model, [named("a")[0]], regions=5, candidates=3)
    with pytest.raises(InputError, match="2 slides are named a; suggest regions on them one after the other"):
        suggest_regions(model, [named("a")[0], named("b")[0], named("a", seed=1)[0]], regions=2, candidates=2)
