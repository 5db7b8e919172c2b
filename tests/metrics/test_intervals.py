import numpy as np
import pytest
from scipy.stats import binomtest

from sparseshot.errors import InputError
from sparseshot.metrics import (
    Counts,
    bootstrap_interval,
    f1_score,
    wilson_interval,
)


@pytest.mark.parametrize(("hits", "total"), [(0, 5), (5, 5), (3, 7), (90, 100), (1, 1000)])
def test_wilson_as_scipy_has_it(hits: int, total: int) -> None:
    expected = binomtest(hits, total).proportion_ci(0.9, method="wilson")
    assert wilson_interval(hits, total, level=0.9) == pytest.approx((expected.low, expected.high))


def test_wilson_of_nothing_and_of_nonsense() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(InputError, match="6 hits of 5"):
        wilson_interval(6, 5)
    with pytest.raises(InputError, match="level is 95"):
        wilson_interval(1, 5, level=95)


def test_bootstrap_of_a_mean_is_as_wide_as_in_theory() -> None:
    values = np.random.default_rng(0).normal(0.7, 0.1, 400)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.002)


def test_bootstrap_of_pooled_f1_resamples_whole_images() -> None:
    random = np.random.default_rng(0)
    counts = [Counts(*map(int, row)) for row in random.integers(1, 100, (12, 3))]
    rows = np.array([(c.tp, c.fp, c.fn) for c in counts])
    interval = bootstrap_interval(rows, lambda means: f1_score(*means.T), resamples=3000, seed=1)
    draws = np.random.default_rng(5).integers(12, size=(3000, 12))
    slow = [sum((counts[i] for i in draw), Counts()).f1 for draw in draws.tolist()]
    assert interval == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.01)
    assert interval.low <= sum(counts, Counts()).f1 <= interval.high


def test_the_same_seed_gives_the_same_interval_and_another_does_not() -> None:
    values = np.random.default_rng(0).random(20)
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)


def test_images_without_a_value_are_left_out() -> None:
    assert bootstrap_interval([0.5, np.nan, 0.5]) == (0.5, 0.5)
    assert bootstrap_interval([[3], [3]]) == (3.0, 3.0)


def test_many_images_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random(30)
    whole = bootstrap_interval(values)
    monkeypatch.setattr("sparseshot.metrics.counts.RESAMPLED_AT_ONCE", 100)
    assert bootstrap_interval(values) == whole


def test_bad_bootstrap_input() -> None:
    with pytest.raises(InputError, match="some images"):
        bootstrap_interval([np.nan])
    with pytest.raises(InputError, match="3 columns; give a statistic"):
        bootstrap_interval([[1, 2, 3]])
    with pytest.raises(InputError, match="level is 1"):
        bootstrap_interval([0.5], level=1)
