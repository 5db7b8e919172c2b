import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.metrics import ScoreHistogram, calibrate_threshold, mark_scores
from sparseshot.metrics.threshold import BINS, LEAST_RECALL, THRESHOLDS

Scores = NDArray[np.float64]


def sigmoid(logits: Scores) -> Scores:
    return np.asarray(1 / (1 + np.exp(-logits)))


def f1_at(threshold: float, cells: Scores, others: Scores) -> float:
    tp, fp = (cells >= threshold).sum(), (others >= threshold).sum()
    return float(2 * tp / (tp + fp + len(cells)))


def best_f1(cells: Scores, others: Scores) -> float:
    return max(f1_at(threshold, cells, others) for threshold in THRESHOLDS[::4])


MIXTURES = {
    "trained on all marks": ((2.0, 1.2, 2000), (-3.0, 1.5, 6000)),
    "trained on one mark in fifty": ((-4.0, 1.0, 2000), (-8.0, 1.5, 8000)),
    "very sure of itself": ((6.0, 3.0, 2000), (-6.0, 2.5, 20000)),
}


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize(("marks", "loss"), [(10, 0.08), (50, 0.03), (500, 0.01)])
def test_comes_near_the_best_threshold_from_marks_alone(mixture: str, marks: int, loss: float) -> None:
    losses = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        cells, others = (sigmoid(random.normal(*args)) for args in MIXTURES[mixture])
        held_out = random.choice(cells, marks, replace=False)
        chosen = calibrate_threshold(held_out, np.concatenate((cells, others)))
        losses.append(best_f1(cells, others) - f1_at(chosen.threshold, cells, others))
    assert np.mean(losses) <= loss


def test_one_lucky_confident_mark_does_not_decide() -> None:
    """At 0.99 recall² / P is (1/10)² / 1, a hundred times that at the right threshold."""
    cells, others = np.linspace(0.5, 0.9, 1000), np.linspace(0.0, 0.2, 9000)
    marks = np.append(cells[50::111], 0.99)
    everything = np.concatenate((cells, others, [0.99]))
    chosen = calibrate_threshold(marks, everything)
    assert 0.2 < chosen.threshold <= 0.55
    assert chosen.recall >= 0.9


def test_the_middle_of_the_gap_is_taken() -> None:
    marks, others = np.full(30, 0.9), np.full(1000, 0.1)
    chosen = calibrate_threshold(marks, np.concatenate((marks, others)))
    logit = np.log(chosen.threshold / (1 - chosen.threshold))
    assert abs(logit) < 0.2
    assert chosen.recall == 1.0
    assert chosen.positive_share == pytest.approx(30 / 1030)
    assert chosen.criterion == pytest.approx(1030 / 30)


def test_equals_precision_times_recall_over_the_prior_when_all_are_marked() -> None:
    random = np.random.default_rng(0)
    cells, others = sigmoid(random.normal(0, 1, 5000)), sigmoid(random.normal(-3, 1, 20000))
    chosen = calibrate_threshold(cells, np.concatenate((cells, others)))
    tp, fp = (cells >= chosen.threshold).sum(), (others >= chosen.threshold).sum()
    product = tp / (tp + fp) * tp / len(cells)
    assert chosen.criterion == pytest.approx(product / (5000 / 25000), rel=1e-6)


def test_criteria_of_two_models_compare_when_places_are_given() -> None:
    """The second finds the same cells, and a thousand things of low score that its threshold leaves out."""
    cells, noise = np.linspace(0.7, 0.9, 100), np.full(1000, 0.05)
    lean = calibrate_threshold(cells[::5], cells, places=10_000)
    noisy = calibrate_threshold(cells[::5], np.concatenate((cells, noise)), places=10_000)
    assert noisy.criterion == pytest.approx(lean.criterion)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 300), max_size=4))
def test_histograms_of_tiles_add_up_to_the_same_threshold(seed: int, cuts: list[int]) -> None:
    random = np.random.default_rng(seed)
    marks, everything = random.random(40), random.random(300)
    whole = calibrate_threshold(marks, everything)
    parts = sum(
        (ScoreHistogram.of(part) for part in np.split(everything, sorted(cuts))),
        ScoreHistogram(),
    )
    first, second = ScoreHistogram.of(marks[:7]), ScoreHistogram.of(marks[7:])
    assert calibrate_threshold(second + first, parts) == whole


def test_pixels_of_one_mark_are_not_independent() -> None:
    """The fifty pixels of the brightest of five marks must not count as fifty marks."""
    random = np.random.default_rng(1)
    cells = np.append(sigmoid(random.normal(0.0, 1.0, 1000)), 0.9999)
    background = sigmoid(random.normal(-5, 1, 90000))
    marks, everything = np.repeat(cells[-5:], 50), np.concatenate((np.repeat(cells, 50), background))
    taken_for_250 = calibrate_threshold(marks, everything)
    assert taken_for_250.high > 0.999
    assert taken_for_250.recall == 0.6, "not fewer than half of the marks"
    assert calibrate_threshold(marks, everything, marks=5).recall >= 0.8


def test_scores_of_one_do_not_attract_the_threshold() -> None:
    """A confident model rounds the scores of half of its cells to one; the others are cells too."""
    random = np.random.default_rng(2)
    cells = np.concatenate([np.ones(500), sigmoid(random.normal(2, 1, 500))])
    everything = np.concatenate([cells, sigmoid(random.normal(-3, 1, 3000))])
    assert calibrate_threshold(cells[::5], everything).recall > 0.9


def test_a_threshold_finds_at_least_half_of_the_marks() -> None:
    marks = np.array([0.999] * 3 + [0.3] * 7)
    everything = np.concatenate([marks, np.full(100_000, 0.29)])
    assert calibrate_threshold(marks, everything).recall >= LEAST_RECALL


@pytest.mark.parametrize("prior", [None, 0.5])
def test_more_marks_narrow_the_interval(prior: float | None) -> None:
    random = np.random.default_rng(3)
    cells, background = sigmoid(random.normal(-1, 0.7, 3000)), sigmoid(random.normal(-5, 1, 30_000))
    everything = np.concatenate([cells, background])
    few, many = (calibrate_threshold(cells[:n], everything, prior=prior) for n in (10, 1000))
    assert few.low <= few.threshold <= few.high
    assert many.high - many.low < few.high - few.low
    assert (few.marks, many.marks) == (10, 1000)


def test_a_prior_decides_among_few_marks_and_not_among_many() -> None:
    random = np.random.default_rng(4)
    cells, background = sigmoid(random.normal(-2, 0.7, 3000)), sigmoid(random.normal(-6, 1, 30_000))
    everything = np.concatenate([cells, background])
    few, few_with_prior = (calibrate_threshold(cells[:5], everything, prior=prior) for prior in (None, 0.5))
    many, many_with_prior = (calibrate_threshold(cells, everything, prior=prior) for prior in (None, 0.5))
    assert few.threshold < few_with_prior.threshold < 0.5
    assert many_with_prior.threshold - many.threshold < (few_with_prior.threshold - few.threshold) / 2


def test_a_prior_holds_areas_less_than_points() -> None:
    random = np.random.default_rng(4)
    cells, background = sigmoid(random.normal(3, 0.7, 100)), sigmoid(random.normal(0, 1, 30_000))
    everything = np.concatenate([cells, background])
    free, points = (calibrate_threshold(cells, everything, prior=prior).threshold for prior in (None, 0.5))
    pixels, every_pixel = np.repeat(cells, 9), np.repeat(everything, 9)
    areas = calibrate_threshold(pixels, every_pixel, marks=100, prior=0.5).threshold
    assert 0.5 < points < areas < free


@pytest.mark.parametrize("marks", [[0.3], [0.3, 0.3, 0.0]])
def test_very_few_marks(marks: list[float]) -> None:
    chosen = calibrate_threshold(marks, [0.3] * 3 + [0.01] * 50)
    assert 0.01 < chosen.threshold <= 0.3


def test_no_threshold_below_everything_that_was_found() -> None:
    """A detector reports cells from some score on; below it the number found stands still, but not in use."""
    random = np.random.default_rng(3)
    cells, others = sigmoid(random.normal(-3.7, 0.8, 1000)), sigmoid(random.normal(-7, 1, 50_000))
    everything = np.concatenate((cells, others))
    for marks in (30, 100, 300):
        held_out = np.where(cells[:marks] >= 0.01, cells[:marks], 0)
        chosen = calibrate_threshold(held_out, everything[everything >= 0.01])
        assert chosen.threshold >= 0.0099


def test_marks_that_were_never_found() -> None:
    chosen = calibrate_threshold([0.0, 0.0], [0.4, 0.6])
    assert (chosen.threshold, chosen.criterion, chosen.recall) == (0.5, 0.0, 0.0)
    assert calibrate_threshold([0.0], []).threshold == 0.5


def test_bad_input() -> None:
    with pytest.raises(InputError, match="no held-out marks"):
        calibrate_threshold([], [0.5])
    with pytest.raises(InputError, match=r"scores run from -3 to 2; give probabilities"):
        calibrate_threshold([-3.0, 2.0], [0.5])
    with pytest.raises(InputError, match="marks is 3 for 2 scores"):
        calibrate_threshold([0.5, 0.5], [0.5], marks=3)
    with pytest.raises(InputError, match="logit 1 is nan"):
        ScoreHistogram.of_logits([0.0, np.nan])
    with pytest.raises(InputError):
        ScoreHistogram.of([np.nan, 0.5])


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, st.integers(0, 50), elements=st.floats(0, 1, width=32)))
def test_a_histogram_counts_what_reaches_each_threshold(scores: NDArray[np.float32]) -> None:
    at_least = ScoreHistogram.of(scores).at_least()
    assert at_least[0] == len(scores)
    # A score within rounding of a threshold may fall on either side of it.
    for place in range(1, BINS, 61):
        sure = (scores >= THRESHOLDS[place] * (1 + 1e-5)).sum()
        possible = (scores >= THRESHOLDS[place] * (1 - 1e-5)).sum()
        assert sure <= at_least[place] <= possible


def test_logits_and_probabilities_fall_into_the_same_bins() -> None:
    logits = np.random.default_rng(0).normal(0, 5, 1000)
    one, other = ScoreHistogram.of_logits(logits), ScoreHistogram.of(sigmoid(logits))
    assert np.abs(np.cumsum(one.counts - other.counts)).max() <= 1
    assert ScoreHistogram.of_logits([-np.inf, np.inf]).counts[[0, -1]].tolist() == [1, 1]


def test_marks_get_the_highest_score_within_the_radius() -> None:
    random = np.random.default_rng(0)
    marks, found, score = random.random((50, 2)) * 30, random.random((80, 2)) * 30, random.random(80)
    near = np.linalg.norm(marks[:, None] - found, axis=-1) <= 2.0
    expected = np.where(near, score, 0).max(axis=1)
    assert mark_scores(marks, found, score, radius=2.0).tolist() == expected.tolist()
    assert mark_scores(marks, np.empty((0, 2)), np.empty(0), radius=2.0).tolist() == [0] * 50


def test_the_error_of_the_criterion_is_what_it_varies_by() -> None:
    random = np.random.default_rng(0)
    others = 1 / (1 + np.exp(-random.normal(-3, 1.5, 20_000)))
    criteria, errors = [], []
    for _ in range(200):
        cells = 1 / (1 + np.exp(-random.normal(1, 1.5, 80)))
        calibration = calibrate_threshold(cells, np.concatenate([others, cells]))
        criteria.append(calibration.criterion)
        errors.append(calibration.criterion_error)
    assert np.mean(errors) == pytest.approx(np.std(criteria), rel=0.35)


def test_more_marks_leave_less_doubt() -> None:
    scores = np.linspace(0.01, 0.99, 500)
    few = calibrate_threshold(scores[-200:], scores, marks=10)
    many = calibrate_threshold(scores[-200:], scores, marks=200)
    assert few.criterion_error > 2 * many.criterion_error > 0


def test_a_mark_that_no_resample_finds_leaves_the_threshold_uncertain() -> None:
    scores = np.append(np.zeros(9999), 0.9)
    calibration = calibrate_threshold(scores, scores, marks=1, prior=0.5)
    assert calibration.low < calibration.threshold < calibration.high
