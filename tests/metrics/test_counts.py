import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.errors import InputError
from sparseshot.metrics import Counts, exclusive_recall, f1_score, mask_counts

Mask = NDArray[np.bool_]
number = st.integers(0, 10**12)
counts = st.builds(Counts, tp=number, fp=number, fn=number)


@given(counts, counts, counts)
def test_counts_add_up_in_any_order_and_grouping(a: Counts, b: Counts, c: Counts) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Counts() == a


@given(arrays(np.bool_, (12, 9)), arrays(np.bool_, (12, 9)), st.integers(0, 12), st.integers(0, 9))
def test_counts_of_tiles_add_up_to_those_of_the_image(
    truth: Mask, found: Mask, row: int, column: int
) -> None:
    tiles = [
        (slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        for rows in (slice(0, row), slice(row, 12))
        for columns in (slice(0, column), slice(column, 9))
    ]
    parts = [mask_counts(truth[tile], found[tile]) for tile in tiles]
    assert sum(parts, Counts()) == mask_counts(truth, found)


@given(arrays(np.bool_, (6, 5)), arrays(np.bool_, (6, 5)))
def test_dice_is_twice_the_overlap_over_the_sum_of_areas(truth: Mask, found: Mask) -> None:
    areas = truth.sum() + found.sum()
    expected = 2 * (truth & found).sum() / areas if areas else 1.0
    assert mask_counts(truth, found).dice == pytest.approx(expected)
    assert mask_counts(truth, found).f1 == mask_counts(found, truth).f1


@given(counts)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(c: Counts) -> None:
    if c.tp:
        assert c.f1 == pytest.approx(2 / (1 / c.precision + 1 / c.recall))


def test_empty_cases() -> None:
    nothing, missed, wrong = Counts(), Counts(fn=3), Counts(fp=3)
    assert (nothing.f1, missed.f1, wrong.f1) == (1.0, 0.0, 0.0)
    assert math.isnan(nothing.precision)
    assert math.isnan(nothing.recall)
    assert math.isnan(missed.precision)
    assert missed.recall == 0
    assert math.isnan(wrong.recall)
    assert wrong.precision == 0


def test_f1_of_many_at_once() -> None:
    table = np.array([[3, 1, 1], [0, 0, 0], [0, 2, 0], [5, 0, 5]])
    assert f1_score(*table.T).tolist() == [Counts(*row).f1 for row in table.tolist()]


def test_pixels_left_out_do_not_count() -> None:
    truth, found = np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])
    assert mask_counts(truth, found, where=[True, False, False, True]) == Counts(tp=1)


def test_masks_of_different_sizes() -> None:
    with pytest.raises(InputError, match=r"\(2, 2\), \(2, 3\)"):
        mask_counts(np.zeros((2, 2)), np.zeros((2, 3)))


def test_exclusive_recall_as_in_the_paper() -> None:
    assert exclusive_recall(Counts(tp=9, fn=1), Counts(tp=2, fn=8)) == pytest.approx(0.9 * 0.8)
    assert exclusive_recall(Counts(tp=9, fn=1), Counts(tp=10)) == 0
    assert exclusive_recall(Counts(tp=9, fn=1), Counts()) == pytest.approx(0.9)
    assert math.isnan(exclusive_recall(Counts(), Counts(tp=1)))
