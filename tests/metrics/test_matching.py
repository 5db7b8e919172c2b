import time
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from sparseshot.cells import Cells
from sparseshot.errors import InputError
from sparseshot.metrics import (
    Counts,
    counts_by_class,
    exclusive_counts,
    match_cells,
    match_points,
    scored_hits,
)
from sparseshot.metrics.matching import Candidates

Points = NDArray[np.float64]


def within(truth: Points, found: Points, radius: float) -> NDArray[np.bool_]:
    near: NDArray[np.bool_] = ((truth[:, None] - found) ** 2).sum(axis=-1) <= radius * radius
    return near


def most_pairs_exhaustively(near: NDArray[np.bool_]) -> int:
    """Try to leave out each true point, or to give it each found point that is still free."""

    @cache
    def most(row: int, used: int) -> int:
        if row == len(near):
            return 0
        free = [column for column in np.flatnonzero(near[row]).tolist() if not used >> column & 1]
        return max([most(row + 1, used), *(1 + most(row + 1, used | 1 << column) for column in free)])

    return most(0, 0)


def lattice(most: int, spread: int) -> st.SearchStrategy[Points]:
    """Points on a half-integer lattice, so that distances of just the radius and duplicates abound."""
    return st.integers(0, most).flatmap(
        lambda n: arrays(np.int64, (n, 2), elements=st.integers(-spread, spread)).map(lambda xy: xy / 2)
    )


def check_is_matching(truth: Points, found: Points, radius: float) -> int:
    matching = match_points(truth, found, radius=radius)
    assert len(set(matching.truth.tolist())) == len(matching.truth)
    assert len(set(matching.found.tolist())) == len(matching.found)
    assert (np.diff(matching.truth) > 0).all()
    gaps = np.linalg.norm(truth[matching.truth] - found[matching.found], axis=1)
    assert (gaps <= radius * (1 + 1e-12)).all()
    assert matching.distance == pytest.approx(gaps)
    return matching.counts.tp


@settings(max_examples=300, deadline=None)
@given(lattice(8, 6), lattice(8, 6), st.sampled_from([0.5, 1.0, 1.5, 2.5]))
def test_no_more_pairs_are_possible_by_exhaustive_search(truth: Points, found: Points, radius: float) -> None:
    assert check_is_matching(truth, found, radius) == most_pairs_exhaustively(within(truth, found, radius))


@settings(max_examples=200, deadline=None)
@given(lattice(60, 20), lattice(60, 20), st.sampled_from([0.5, 1.5, 3.0, 30.0]))
def test_no_more_pairs_are_possible_by_linear_sum_assignment(
    truth: Points, found: Points, radius: float
) -> None:
    near = within(truth, found, radius)
    rows, columns = linear_sum_assignment(near, maximize=True)
    assert check_is_matching(truth, found, radius) == near[rows, columns].sum()


@pytest.mark.parametrize("radius", [1.0, 3.0, 8.0])
def test_many_points(radius: float) -> None:
    random = np.random.default_rng(0)
    truth = random.random((1500, 2)) * 100 - 1e5
    found = random.random((1300, 2)) * 100 - 1e5
    near = within(truth, found, radius)
    rows, columns = linear_sum_assignment(near, maximize=True)
    assert check_is_matching(truth, found, radius) == near[rows, columns].sum()


@settings(max_examples=100, deadline=None)
@given(lattice(30, 12), lattice(30, 12), st.sampled_from([1.0, 2.5]))
def test_truth_and_found_may_change_places(truth: Points, found: Points, radius: float) -> None:
    there = match_points(truth, found, radius=radius).counts
    back = match_points(found, truth, radius=radius).counts
    assert there == Counts(tp=back.tp, fp=back.fn, fn=back.fp)


def test_counts_of_groups_further_apart_than_the_radius_add_up() -> None:
    random = np.random.default_rng(0)
    truth, found = random.random((400, 2)), random.random((300, 2))
    groups = [
        (truth * 20 + 100 * np.array(at), found * 20 + 100 * np.array(at)) for at in product((0, 1), (0, 1))
    ]
    parts = [match_points(*group, radius=1.5).counts for group in groups]
    whole = match_points(*(np.concatenate(points) for points in zip(*groups, strict=True)), radius=1.5).counts
    assert sum(parts, Counts()) == whole


def test_near_pairs_come_first() -> None:
    truth = np.array([[0.0, 0.0], [10.0, 0.0]])
    found = np.array([[2.0, 0.0], [0.5, 0.0], [9.0, 0.0]])
    matching = match_points(truth, found, radius=3.0)
    assert matching.found.tolist() == [1, 2]
    assert matching.distance.tolist() == [0.5, 1.0]
    assert matching.counts == Counts(tp=2, fp=1)


def test_the_sum_of_distances_is_the_least() -> None:
    random = np.random.default_rng(0)
    truth, found = random.random((80, 2)), random.random((80, 2))
    distance = np.linalg.norm(truth[:, None] - found, axis=-1)
    rows, columns = linear_sum_assignment(distance)
    assert match_points(truth, found, radius=2).distance.sum() == pytest.approx(distance[rows, columns].sum())


def test_crowds_are_matched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    truth, found = random.random((300, 2)) * 10, random.random((300, 2)) * 10
    wanted = match_points(truth, found, radius=1.0)
    monkeypatch.setattr("sparseshot.metrics.matching._MOST_AT_ONCE", 10)
    assert check_is_matching(truth, found, 1.0) == wanted.counts.tp
    assert match_points(truth, found, radius=1.0).distance.mean() < 1.5 * wanted.distance.mean()


@settings(max_examples=100, deadline=None)
@given(lattice(40, 14), lattice(40, 14), st.integers(0, 40), st.integers(0, 99))
def test_gains_count_the_greatest_matching_of_every_beginning(
    truth: Points, found: Points, first: int, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(found)).astype(np.int32)
    gains = Candidates.within(found, truth, radius=1.5).gains(order)
    beginning = order[:first]
    assert gains[:first].sum() == match_points(truth, found[beginning], radius=1.5).counts.tp


def test_rounding_does_not_part_neighbours() -> None:
    """In buckets of just the radius, these two fall into the first and the third."""
    truth = np.array([[355.72593352659385, 0.0], [1468.30141238422, 0.0]])
    found = np.array([[1470.8357528827567, 0.0]])
    assert match_points(truth, found, radius=2.534340498536734).counts == Counts(tp=1, fn=1)


@pytest.mark.parametrize(("truth", "found"), [(0, 0), (0, 3), (3, 0)])
def test_nothing_to_match(truth: int, found: int) -> None:
    counts = match_points(np.zeros((truth, 2)), np.zeros((found, 2)), radius=1.0).counts
    assert counts == Counts(fp=found, fn=truth)


def test_a_radius_in_the_wrong_unit_is_refused_before_memory_runs_out() -> None:
    points = np.random.default_rng(0).random((20_000, 2))
    with pytest.raises(InputError, match="more than 268,435,456 pairs for 20,000 and 20,000 points"):
        match_points(points, points, radius=3.0)


def test_bad_points() -> None:
    with pytest.raises(InputError, match=r"found_xy\[0\] is \[inf, 0.0\]"):
        match_points(np.zeros((1, 2)), np.array([[np.inf, 0.0]]), radius=1.0)
    with pytest.raises(InputError, match="radius is -1"):
        match_points(np.zeros((1, 2)), np.zeros((1, 2)), radius=-1)


def cells(
    *rows: tuple[float, float, int], classes: tuple[str, ...] = ("a", "b"), mpp: float | None = 0.5
) -> Cells:
    table = np.array(rows, np.float64).reshape(-1, 3)
    return Cells(table[:, :2], classes=classes, label=table[:, 2].astype(np.int16), mpp=mpp)


def test_the_radius_of_cells_is_in_micrometres() -> None:
    truth, found = cells((0, 0, 0)), cells((6, 0, 0))
    assert match_cells(truth, found, radius_um=3.0).distance.tolist() == [3.0]
    assert match_cells(truth, found, radius_um=2.9).counts.tp == 0
    assert match_cells(truth.rescaled(0.25), found.rescaled(0.25), radius_um=3.0).counts.tp == 1


def test_classes_match_by_name_whatever_their_order() -> None:
    truth = cells((0, 0, 0), (50, 0, 1), (90, 0, -1))
    found = cells((1, 0, 1), (51, 0, 1), (91, 0, -1), classes=("b", "a"))
    assert match_cells(truth, found).counts == Counts(tp=3)
    matching = match_cells(truth, found, by_class=True)
    assert (matching.truth.tolist(), matching.found.tolist()) == ([0, 2], [0, 2])
    assert matching.counts == Counts(tp=2, fp=1, fn=1)


def test_a_right_place_with_the_wrong_class_is_wrong_in_one_class_and_missed_in_the_other() -> None:
    truth, found = cells((0, 0, 0), (50, 0, 1)), cells((1, 0, 0), (51, 0, 0))
    matching = match_cells(truth, found)
    assert counts_by_class(matching, truth, found) == {"a": Counts(tp=1, fp=1), "b": Counts(fn=1)}


def test_cells_of_different_or_unknown_mpp() -> None:
    one = cells((0, 0, 0))
    assert match_cells(one, replace(one, mpp=None)).counts.tp == 1
    with pytest.raises(InputError, match=r"0\.5 µm/px, found ones 0\.25"):
        match_cells(one, one.rescaled(0.25))
    with pytest.raises(InputError, match="neither"):
        match_cells(replace(one, mpp=None), replace(one, mpp=None))


def test_a_found_cell_speaks_for_one_mark_only() -> None:
    truth = cells((0, 0, 0), (4, 0, 1), (50, 0, 1))
    own, others = exclusive_counts(truth, cells((0, 1, 0)), of_class="a")
    assert (own, others) == (Counts(tp=1), Counts(fn=2))
    own, others = exclusive_counts(truth, cells((50, 1, 0), (200, 200, 0)), of_class="a")
    assert (own, others) == (Counts(fn=1), Counts(tp=1, fn=1))
    with pytest.raises(InputError, match=r"there is no class 'c'\. Known are a, b"):
        exclusive_counts(truth, truth, of_class="c")


def test_hits_in_a_crowd_are_counted_in_moments() -> None:
    random = np.random.default_rng(0)
    truth = random.random((20_000, 2)) * 1000
    found = random.random((20_000, 2)) * 1000
    score = random.random(20_000)
    start = time.process_time()
    hits = scored_hits(truth, found, score, radius=15.0)  # 14 found points near each
    assert time.process_time() - start < 10
    for threshold in (0.2, 0.9):
        above = found[score >= threshold]
        near = Candidates.within(above, truth, radius=15.0)
        table = csr_array((np.ones(len(near.row)), (near.row, near.column)), shape=near.shape)
        largest = np.count_nonzero(maximum_bipartite_matching(table, "column") >= 0)
        assert hits.counts(threshold).tp == largest
