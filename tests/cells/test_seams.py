import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.cells.seams import DROPPED, KEPT, OPEN, settle
from sparseshot.cells.suppression import suppress


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


@pytest.mark.parametrize("edge", [0.0, np.inf])
def test_nothing_gives_nothing(edge: float) -> None:
    assert settle(np.empty((0, 2)), np.empty(0), radius=1.0, edge_y=edge).shape == (0,)
