import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.metrics import (
    Counts,
    ScoredHits,
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
def test_counts_are_those_of_the_largest_matching_at_every_threshold(seed: int, radius: float) -> None:
    truth, found, score = image(seed)
    hits = scored_hits(truth, found, score, radius=radius)
    assert hits.thresholds.tolist() == sorted(set(score.tolist()), reverse=True)
    thresholds = [*hits.thresholds, 2.0, -1.0, 0.333]
    for threshold, counts in zip(thresholds, hits.counts_at(thresholds), strict=True):
        expected = match_points(truth, found[score >= threshold], radius=radius).counts
        assert hits.counts(threshold) == expected == Counts(*counts)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_score_reaches_itself_in_either_precision(kind: type) -> None:
    hits = scored_hits(np.zeros((1, 2)), np.zeros((1, 2)), np.array([0.1], kind), radius=1.0)
    assert hits.counts(0.1) == Counts(tp=1)
    assert hits.counts(float(np.nextafter(kind(0.1), kind(1)))) == Counts(fn=1)


def test_whole_numbers_are_scores_too() -> None:
    hits = scored_hits(np.zeros((1, 2)), np.zeros((1, 2)), np.array([3]), radius=1.0)
    assert (hits.counts(2.5), hits.counts(3.5)) == (Counts(tp=1), Counts(fn=1))


def test_images_add_up_in_any_order() -> None:
    images = [image(seed, truth=20 + seed) for seed in range(4)]
    parts = [scored_hits(*one, radius=4.0) for one in images]
    there = parts[0] + parts[1] + parts[2] + parts[3]
    back = parts[3] + (parts[2] + (parts[1] + parts[0]))
    for threshold in (0.0, 0.3, 0.95):
        whole = sum((part.counts(threshold) for part in parts), Counts())
        assert there.counts(threshold) == back.counts(threshold) == whole
    assert there.thresholds.tolist() == back.thresholds.tolist()
    assert there.average_precision == back.average_precision


def test_average_precision_by_hand() -> None:
    hits = ScoredHits(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]), 4)
    assert hits.average_precision == pytest.approx((1 + 2 / 3) / 4)


def test_average_precision_of_a_perfect_and_of_a_blind_model() -> None:
    truth = np.arange(10.0).reshape(5, 2) * 10
    assert scored_hits(truth, truth, np.linspace(1, 0, 5), radius=1).average_precision == 1.0
    blind = scored_hits(truth, np.empty((0, 2)), np.empty(0), radius=1)
    assert (blind.average_precision, blind.best()) == (0.0, (0.5, 0.0))


def test_nothing_to_find() -> None:
    hits = scored_hits(np.empty((0, 2)), np.zeros((2, 2)), np.array([0.2, 0.4]), radius=1)
    assert math.isnan(hits.average_precision)
    assert hits.counts_at([0.4, 0.2]).tolist() == [[0, 1, 0], [0, 2, 0]]
    assert hits.best() == (0.4, 0.0)
    nothing = scored_hits(np.empty((0, 2)), np.empty((0, 2)), np.empty(0), radius=1)
    assert nothing.best() == (0.5, 1.0)


def test_the_best_threshold() -> None:
    hits = ScoredHits(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, True, False, False]), 2)
    assert hits.best() == (0.8, 1.0)


def test_a_neighbour_is_not_left_alone() -> None:
    """Nearest first would give the surer point the left true one, and leave the other without."""
    truth, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[1.9, 0.0], [-1.0, 0.0]])
    assert scored_hits(truth, found, np.array([0.9, 0.8]), radius=2.5).hit.tolist() == [True, True]


@settings(max_examples=30, deadline=None)
@given(arrays(np.bool_, (20, 20)), st.integers(0, 9))
def test_pixels_are_counted_like_cells(truth: NDArray[np.bool_], seed: int) -> None:
    score = np.random.default_rng(seed).random((20, 20))
    hits = ScoredHits(score.ravel(), truth.ravel(), int(truth.sum()))
    for threshold in (0.0, 0.3, 0.999):
        assert hits.counts(threshold) == mask_counts(truth, score >= threshold)
