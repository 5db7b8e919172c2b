"""Areas, ranks and tests agree with what can be worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sparseshot.experiments.report.ranking import FEWEST_PAIRS, area, holm, mean_ranks, paired_tests


def test_the_area_of_a_flat_curve_is_its_height() -> None:
    curve = {0.1: 0.7, 0.3: 0.7, 1.0: 0.7}
    assert area(curve, [0.1, 0.3, 1.0]) == pytest.approx(0.7)


def test_the_area_counts_only_the_fractions_asked_for() -> None:
    assert area({0.1: 0.0, 0.5: 0.4, 1.0: 0.9}, [0.1, 0.5]) == pytest.approx(0.2)
    assert area({0.1: 0.5}, [0.1]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_and_keeps_the_order(values: list[float]) -> None:
    corrected = holm(values)
    order = np.argsort(values, kind="stable")
    assert all(new >= old for new, old in zip(corrected, values, strict=True))
    assert all(np.diff(np.array(corrected)[order]) >= 0)
    assert max(corrected) <= 1


def test_ranks_are_over_what_all_have() -> None:
    scores = {"a": {1: 0.9, 2: 0.5, 3: 0.5}, "b": {1: 0.8, 2: 0.6}, "c": {1: 0.7, 2: 0.6}}
    ranks, places = mean_ranks(scores)
    assert places == 2
    assert ranks == {"a": 2.0, "b": 1.75, "c": 2.25}
    assert mean_ranks({"a": {1: 0.5}, "b": {2: 0.5}}) == ({}, 0)


def test_the_test_is_wilcoxons_with_holms_correction() -> None:
    random = np.random.default_rng(0)
    places = list(range(12))
    first = dict(zip(places, random.uniform(0.7, 0.8, 12), strict=True))
    worse = {place: value - 0.01 - 0.001 * place for place, value in first.items()}
    mixed = {place: value + random.normal(0, 0.02) for place, value in first.items()}
    few = {place: first[place] - 0.1 for place in places[: FEWEST_PAIRS - 1]}
    same = dict(first)
    tests = paired_tests("a", {"a": first, "worse": worse, "mixed": mixed, "few": few, "same": same})
    raw = [
        float(stats.wilcoxon([first[place] - other[place] for place in places]).pvalue)
        for other in (worse, mixed)
    ]
    assert [tests["worse"].p, tests["mixed"].p] == pytest.approx(holm(raw))
    assert (tests["worse"].pairs, tests["worse"].wins) == (12, 12)
    assert tests["few"].p is None
    assert tests["same"].p is None
    assert tests["same"].wins == 0
