"""Suppression against a slow version, and band by band against all at once."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.cells.suppression import DROPPED, KEPT, OPEN, settle
from sparseshot.errors import InputError

Points = NDArray[np.float64]


def suppress(xy: Points, score: NDArray[np.floating], *, radius: float) -> NDArray[np.bool_]:
    """Decide all points at once."""
    return np.asarray(settle(xy, score, radius=radius, edge_y=np.inf) == KEPT)


def slowly(xy: Points, score: NDArray[np.floating], radius: float) -> NDArray[np.bool_]:
    """Take the surest, drop all around it, again."""
    kept = np.zeros(len(xy), bool)
    alive = np.ones(len(xy), bool)
    for i in np.lexsort((xy[:, 1], xy[:, 0], -score)):
        if alive[i]:
            kept[i] = True
            alive[((xy - xy[i]) ** 2).sum(axis=1) <= radius * radius] = False
    return kept


@st.composite
def points_with_scores(draw: st.DrawFn) -> tuple[Points, Points]:
    """Points on a half-integer lattice, so that ties, duplicates and distances of just a radius abound."""
    n = draw(st.integers(0, 60))
    spread = draw(st.sampled_from([2, 12, 60]))
    lattice = draw(arrays(np.int64, (n, 2), elements=st.integers(-spread, spread)))
    score = draw(arrays(np.int64, n, elements=st.integers(0, 6)))
    return lattice / 2, score / 6


def as_set(xy: Points, score: Points, kept: NDArray[np.bool_]) -> list[tuple[float, ...]]:
    return sorted(map(tuple, np.column_stack((xy, score))[kept].tolist()))


@settings(max_examples=300, deadline=None)
@given(points_with_scores(), st.sampled_from([0.5, 1.0, 2.5, 7.0, 1000.0]))
def test_agrees_with_taking_the_surest_again_and_again(data: tuple[Points, Points], radius: float) -> None:
    xy, score = data
    assert as_set(xy, score, suppress(xy, score, radius=radius)) == as_set(
        xy, score, slowly(xy, score, radius)
    )


@settings(max_examples=100, deadline=None)
@given(points_with_scores(), st.randoms(use_true_random=False), st.sampled_from([0.5, 1.5, 4.0]))
def test_does_not_depend_on_the_order(data: tuple[Points, Points], random: Random, radius: float) -> None:
    xy, score = data
    order = list(range(len(xy)))
    random.shuffle(order)
    kept = suppress(xy, score, radius=radius)
    shuffled = suppress(xy[order], score[order], radius=radius)
    assert as_set(xy, score, kept) == as_set(xy[order], score[order], shuffled)


@settings(max_examples=100, deadline=None)
@given(points_with_scores(), st.sampled_from([0.5, 1.5, 4.0]))
def test_a_second_time_changes_nothing(data: tuple[Points, Points], radius: float) -> None:
    xy, score = data
    kept = suppress(xy, score, radius=radius)
    assert suppress(xy[kept], score[kept], radius=radius).all()


@pytest.mark.parametrize("offset", [0.0, -1e6, 3e7])
def test_many_points_anywhere(offset: float) -> None:
    random = np.random.default_rng(0)
    xy = random.random((3000, 2)) * 200 + offset
    score = random.random(3000).astype(np.float32)
    assert (suppress(xy, score, radius=5.0) == slowly(xy, score, 5.0)).all()


def test_a_long_chain_in_which_each_waits_for_the_next() -> None:
    n = 200_000
    xy = np.column_stack((np.arange(n, dtype=float), np.zeros(n)))
    kept = suppress(xy, np.arange(n) / n, radius=1.0)
    assert kept[::-1][::2].all()
    assert not kept[::-1][1::2].any()


def test_a_crowd_within_one_radius_leaves_one() -> None:
    random = np.random.default_rng(0)
    xy = random.random((200_000, 2))
    score = random.random(200_000)
    assert np.flatnonzero(suppress(xy, score, radius=2.0)).tolist() == [int(score.argmax())]


def test_a_wide_slide_with_a_small_radius_takes_no_memory_for_empty_space() -> None:
    xy = np.array([[0.0, 0.0], [250_000.0, 250_000.0], [250_000.0, 250_001.0]])
    assert suppress(xy, np.array([0.5, 0.5, 0.6]), radius=2.0).tolist() == [True, False, True]


def test_the_distance_itself_is_within() -> None:
    xy = np.array([[0.0, 0.0], [3.0, 0.0]])
    assert suppress(xy, np.array([1.0, 0.0]), radius=3.0).tolist() == [True, False]
    assert suppress(xy, np.array([1.0, 0.0]), radius=np.nextafter(3.0, 0)).tolist() == [True, True]


def test_no_points() -> None:
    assert suppress(np.empty((0, 2)), np.empty(0), radius=1.0).shape == (0,)
    assert settle(np.empty((0, 2)), np.empty(0), radius=1.0, edge_y=0.0).shape == (0,)


@pytest.mark.parametrize(
    ("xy", "score", "radius", "message"),
    [
        ([[0, 0, 0]], [1], 1.0, r"xy has shape \(1, 3\)"),
        ([[0, 0], [np.nan, 1]], [1, 1], 1.0, r"xy\[1\] is \[nan, 1.0\]"),
        ([[0, 0]], [1, 2], 1.0, r"score has shape \(2,\) for 1 points"),
        ([[0, 0], [1, 1]], [1, np.nan], 1.0, r"score\[1\] is nan"),
        ([[0, 0]], [1], 0.0, "radius is 0.0"),
        ([[0, 0]], [1], np.inf, "radius is inf"),
        ([[0, 0], [1e9, 0]], [1, 1], 1e-3, "too small beside an extent of 1e\\+09"),
    ],
)
def test_bad_input(xy: list[list[float]], score: list[float], radius: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suppress(np.array(xy, float), np.array(score, float), radius=radius)


def by_bands(
    xy: NDArray[np.float64], score: NDArray[np.float64], *, radius: float, edges: list[float]
) -> NDArray[np.float64]:
    """Return what stays when points come band after band and only open ones are kept between."""
    kept, open_rows = [], np.empty(0, np.int64)
    seen = -np.inf
    for edge in [*edges, np.inf]:
        new = np.flatnonzero((xy[:, 1] >= seen) & (xy[:, 1] < edge))
        rows = np.concatenate([open_rows, new])
        state = settle(xy[rows], score[rows], radius=radius, edge_y=edge)
        kept.append(rows[state == KEPT])
        open_rows = rows[state == OPEN]
        seen = edge
    assert not len(open_rows)
    return np.unique(xy[np.concatenate(kept)], axis=0)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 400),
    radius=st.floats(0.3, 9.0),
    edges=st.lists(st.floats(0, 40), max_size=12),
    levels=st.sampled_from([2, 5, 10_000]),
)
def test_band_after_band_is_suppression_of_all_at_once(
    seed: int, count: int, radius: float, edges: list[float], levels: int
) -> None:
    random = np.random.default_rng(seed)
    xy = np.round(random.uniform(0, 40, (count, 2)), random.integers(0, 3))
    score = random.integers(0, levels, count) / levels  # few levels make many ties
    expected = np.unique(xy[suppress(xy, score, radius=radius)], axis=0)
    np.testing.assert_array_equal(by_bands(xy, score, radius=radius, edges=sorted(edges)), expected)


def test_a_chain_over_many_bands_is_followed_to_its_end() -> None:
    y = np.arange(100.0)
    xy, score = np.column_stack([np.zeros(100), y]), y / 100  # each is surer than the one above it
    state = settle(xy, score, radius=1.0, edge_y=100.0)
    assert (state == OPEN).all()
    assert len(by_bands(xy, score, radius=1.0, edges=[10.0, 50.0, 51.0])) == 50
    assert (settle(xy, score[::-1], radius=1.0, edge_y=100.0)[:-1] != OPEN).all()


def test_a_point_whose_place_is_taken_is_dropped_even_at_the_edge() -> None:
    xy = np.array([[0.0, 5.0], [0.0, 7.5]])
    assert settle(xy, np.array([0.9, 0.1]), radius=3.0, edge_y=8.5).tolist() == [KEPT, DROPPED]
    assert settle(xy, np.array([0.1, 0.9]), radius=3.0, edge_y=8.5).tolist() == [OPEN, OPEN]
