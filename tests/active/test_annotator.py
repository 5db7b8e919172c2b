"""The simulated annotator."""

from dataclasses import replace

import numpy as np
import pytest
import shapely
from tests.prediction.networks import ArraySlide, random_detector
from tests.training.blobs import blobs

from sparseshot.active.annotator import POLICIES, Annotation, Opportunity, first_marks, spend
from sparseshot.active.review import is_proposed, is_rejected
from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.metrics import match_cells
from sparseshot.prediction import Model
from sparseshot.training.annotated import AnnotatedSlide

SIDE_UM = 40.0


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(random_detector(threshold=0.5), device="cpu")


def slides(*, count: int = 60) -> list[AnnotatedSlide]:
    made = [blobs(seed, size=256, count=count) for seed in (0, 1)]
    return [
        AnnotatedSlide(ArraySlide(slide.pixels, name=str(n)), cells) for n, (slide, cells) in enumerate(made)
    ]


def spent(model: Model, policy: str, clicks: int = 30, seed: int = 0) -> Annotation:
    given = Opportunity(model, clicks, np.random.default_rng(seed), SIDE_UM)
    return spend(first_marks(slides(), 20, seed=seed), policy, given)


def positives(item: AnnotatedSlide) -> Cells:
    return item.marks[~is_rejected(item.marks)]


def test_the_first_marks_are_true_cells_and_all_of_the_clicks() -> None:
    annotation = first_marks(slides(), 20, seed=3)
    assert (annotation.clicks, annotation.marks) == (20, 20)
    for item in annotation.slides:
        assert {*map(tuple, item.marks.xy)} <= {*map(tuple, item.cells.xy)}
    assert first_marks(slides(), 20, seed=4).slides[0].marks.xy.tolist() != (
        annotation.slides[0].marks.xy.tolist()
    )
    assert first_marks(slides(), 10_000, seed=0).marks == 120, "there are no more cells"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_repeatable_and_pays_for_what_it_marks(model: Model, policy: str) -> None:
    one, two = spent(model, policy), spent(model, policy)
    assert one.clicks == two.clicks >= 50
    for first, second in zip(one.slides, two.slides, strict=True):
        assert first.marks.xy.tolist() == second.marks.xy.tolist()
        found = match_cells(first.cells, positives(first), radius_um=3.0)
        assert len(found.truth) == len(positives(first)), "every positive mark is a cell of its own"
        denied = replace(first.marks[is_rejected(first.marks)], score=None)
        near = match_cells(first.cells, denied, radius_um=0.5)
        assert len(near.truth) == 0, "no cell is rejected"
    by_hand = sum(int((~is_proposed(item.marks)).sum()) for item in one.slides)
    rejected = sum(int((is_rejected(item.marks) & is_proposed(item.marks)).sum()) for item in one.slides)
    regions = sum(len(item.marks.regions) for item in one.slides)
    if policy in {"random", "errors"}:
        assert one.clicks == by_hand == 50
    else:
        assert one.clicks >= by_hand + rejected + regions
    assert (regions > 0) == (policy in {"regions", "review"})


@pytest.mark.parametrize("policy", ["regions", "review"])
def test_a_region_that_is_done_holds_every_cell(model: Model, policy: str) -> None:
    for item in spent(model, policy, clicks=60).slides:
        done = shapely.union_all(item.marks.regions)
        inside = item.cells[shapely.contains_xy(done, item.cells.xy)]
        assert len(match_cells(inside, positives(item), radius_um=3.0).truth) == len(inside)
        areas = sum(region.area for region in item.marks.regions)
        assert done.area == pytest.approx(areas), "no region is done twice"


def test_clicks_on_errors_do_not_repeat(model: Model) -> None:
    once = spent(model, "errors", clicks=30)
    given = Opportunity(model, 40, np.random.default_rng(9), SIDE_UM)
    twice = spend(once, "errors", given)
    for item in twice.slides:
        assert len(np.unique(item.marks.xy, axis=0)) == len(item.marks)


def test_slides_of_one_name_cannot_be_reviewed(model: Model) -> None:
    twice = [slides()[0]] * 2
    given = Opportunity(model, 10, np.random.default_rng(0), SIDE_UM)
    with pytest.raises(InputError, match="2 slides are named 0"):
        spend(first_marks(twice, 5, seed=0), "review", given)


def test_review_of_a_finished_slide_spends_nothing(model: Model) -> None:
    everything = spent(model, "regions", clicks=10_000)
    assert everything.marks == 120
    given = Opportunity(model, 50, np.random.default_rng(0), SIDE_UM)
    for policy in ("random", "regions", "review"):
        assert spend(everything, policy, given).clicks == everything.clicks


def test_an_unknown_policy_names_the_known_ones(model: Model) -> None:
    with pytest.raises(InputError, match="random, errors, regions, review"):
        spend(first_marks(slides(), 5, seed=0), "guess", Opportunity(model, 1, np.random.default_rng(0)))
