from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.suppression import suppress, suppress_cells
from sparseshot.errors import InputError

Points = NDArray[np.float64]


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


def test_cells_are_suppressed_in_micrometres_and_keep_their_columns() -> None:
    cells = Cells(
        np.array([[0.0, 0.0], [0.0, 11.0], [0.0, 13.0]]),
        classes=("a", "b"),
        label=np.array([0, 1, 0], np.int16),
        score=np.array([0.9, 0.8, 0.7], np.float32),
        mpp=0.25,
    )
    kept = suppress_cells(cells, radius_um=3.0)
    assert kept.xy.tolist() == [[0, 0], [0, 13]]
    assert kept.counts() == {"a": 2, "b": 0}


def test_cells_need_mpp_and_score() -> None:
    with pytest.raises(InputError, match="no mpp"):
        suppress_cells(Cells(np.zeros((1, 2)), score=np.ones(1, np.float32)), radius_um=3.0)
    with pytest.raises(InputError, match="no score"):
        suppress_cells(Cells(np.zeros((1, 2)), mpp=0.25), radius_um=3.0)
