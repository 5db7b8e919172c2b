import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.metrics import (
    Counts,
    PrecisionRecall,
    ScoredHits,
    ScoreHistogram,
    gains_by_score,
    mask_counts,
    match_points,
    scored_hits,
)

Points = NDArray[np.float64]


def image(seed: int, truth: int = 150, found: int = 200) -> tuple[Points, Points, Points]:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 20, found) / 20  # so that ties abound
    return random.random((truth, 2)) * 60, random.random((found, 2)) * 60, scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("radius", [1.0, 4.0, 9.0])
def test_the_curve_is_the_greatest_matching_at_every_threshold(seed: int, radius: float) -> None:
    truth, found, score = image(seed)
    hits = scored_hits(truth, found, score, radius=radius)
    curve = hits.curve()
    assert curve.threshold.tolist() == sorted(set(score.tolist()), reverse=True)
    for place, threshold in enumerate(curve.threshold):
        counts = match_points(truth, found[score >= threshold], radius=radius).counts
        assert hits.counts(threshold) == counts
        assert (curve.tp[place], curve.found[place]) == (counts.tp, counts.tp + counts.fp)
        assert curve.f1[place] == pytest.approx(counts.f1)
        assert curve.precision[place] == pytest.approx(counts.precision)
        assert curve.recall[place] == pytest.approx(counts.recall)


def test_images_add_up_in_any_order() -> None:
    images = [image(seed, truth=20 + seed) for seed in range(4)]
    parts = [scored_hits(*one, radius=4.0) for one in images]
    there = parts[0] + parts[1] + parts[2] + parts[3]
    back = parts[3] + (parts[2] + (parts[1] + parts[0]))
    for threshold in (0.0, 0.3, 0.95):
        whole = sum((part.counts(threshold) for part in parts), Counts())
        assert there.counts(threshold) == back.counts(threshold) == whole
    assert there.curve().tp.tolist() == back.curve().tp.tolist()
    assert there.curve().average_precision == back.curve().average_precision


def test_average_precision_by_hand() -> None:
    hits = ScoredHits(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]), 4)
    assert hits.curve().average_precision == pytest.approx((1 + 2 / 3) / 4)


def test_average_precision_of_a_perfect_and_of_a_blind_model() -> None:
    truth = np.arange(10.0).reshape(5, 2) * 10
    assert scored_hits(truth, truth, np.linspace(1, 0, 5), radius=1).curve().average_precision == 1.0
    blind = scored_hits(truth, np.empty((0, 2)), np.empty(0), radius=1).curve()
    assert (blind.average_precision, blind.best()) == (0.0, (0.5, 0.0))


def test_nothing_to_find() -> None:
    curve = scored_hits(np.empty((0, 2)), np.zeros((2, 2)), np.array([0.2, 0.4]), radius=1).curve()
    assert math.isnan(curve.average_precision)
    assert np.isnan(curve.recall).all()
    assert curve.f1.tolist() == [0.0, 0.0]
    nothing = scored_hits(np.empty((0, 2)), np.empty((0, 2)), np.empty(0), radius=1).curve()
    assert nothing.best() == (0.5, 1.0)


def test_the_best_threshold() -> None:
    hits = ScoredHits(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, True, False, False]), 2)
    assert hits.curve().best() == (0.8, 1.0)


def test_a_neighbour_is_not_left_alone() -> None:
    """Nearest first would give the surer point the left true one, and leave the other without."""
    truth, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[1.9, 0.0], [-1.0, 0.0]])
    assert gains_by_score(truth, found, np.array([0.9, 0.8]), radius=2.5).tolist() == [True, True]


@settings(max_examples=30, deadline=None)
@given(arrays(np.bool_, (20, 20)), st.integers(0, 9))
def test_the_curve_of_pixels_from_histograms(truth: NDArray[np.bool_], seed: int) -> None:
    score = np.random.default_rng(seed).random((20, 20))
    inside, everywhere = ScoreHistogram.of(score[truth]), ScoreHistogram.of(score)
    curve = PrecisionRecall.of_histograms(inside, everywhere)
    for place in range(0, len(curve.threshold), 97):
        counts = mask_counts(truth, score >= curve.threshold[place])
        assert (curve.tp[place], curve.found[place]) == (counts.tp, counts.tp + counts.fp)
        assert curve.f1[place] == pytest.approx(counts.dice)


def test_pixels_inside_are_among_all() -> None:
    with pytest.raises(InputError, match="more scores inside"):
        PrecisionRecall.of_histograms(ScoreHistogram.of([0.5, 0.6]), ScoreHistogram.of([0.5]))
