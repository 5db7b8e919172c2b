from collections.abc import Sequence

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseshot.cells.outlines import build_outlines
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.rings import Rings, offsets, rings_of
from sparseshot.errors import RepairWarning

corners = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=0, max_size=9)


def of_rings(*rings: Sequence[tuple[float, float]]) -> Rings:
    """Take each ring for an outline of its own."""
    xy = np.array([corner for ring in rings for corner in ring], float).reshape(-1, 2)
    each = np.arange(len(rings) + 1)
    return Rings(xy, offsets(np.array([len(ring) for ring in rings])), each, each)


@given(st.lists(corners, min_size=1, max_size=4))
@settings(deadline=None)
def test_whatever_comes_is_valid_or_none(rings: list[list[tuple[float, float]]]) -> None:
    shapes, places = build_outlines(of_rings(*rings), Repairs())
    for ring, shape, place in zip(rings, shapes, places, strict=True):
        if shape is None:
            assert np.isnan(place).all()
            polygon = shapely.make_valid(shapely.Polygon(ring)) if len(ring) > 2 else shapely.Point()
            assert polygon.area < 1e-6
        else:
            assert shape.is_valid
            assert shape.area > 0
            np.testing.assert_allclose(place, shape.centroid.coords[0], atol=1e-9)
            if len(ring) > 2 and shapely.Polygon(ring).is_valid:
                assert shape.equals(shapely.Polygon(ring))


@given(st.integers(3, 30), st.floats(0, 6), st.floats(-1e5, 1e5))
@settings(deadline=None)
def test_a_ring_that_winds_twice_round_its_centre_is_seen(count: int, phase: float, far: float) -> None:
    for rounds in (1, 2):
        angle = phase + np.linspace(0, rounds * 2 * np.pi, rounds * count, endpoint=False)
        radius = 10 + 0.1 * np.arange(rounds * count)
        ring = np.column_stack([np.cos(angle), np.sin(angle)]) * radius[:, None] + far
        shapes, _ = build_outlines(of_rings(ring.tolist()), Repairs())
        assert shapes[0].is_valid


def test_holes_and_parts_are_kept() -> None:
    square = shapely.box(0, 0, 9, 9)
    ring = square.difference(shapely.box(3, 3, 4, 4))
    wanted = np.array([ring, None, shapely.MultiPolygon([ring, shapely.box(20, 20, 30, 30)]), square])
    repairs = Repairs()
    given_ = rings_of(wanted)
    shapes, places = build_outlines(given_, repairs, wanted=~shapely.is_missing(wanted))
    assert shapely.equals(shapes, wanted).tolist() == [True, False, True, True]
    assert shapes[1] is None
    np.testing.assert_allclose(places[2], wanted[2].centroid.coords[0])
    repairs.warn("nothing was repaired")


def test_a_hole_without_area_is_dropped_and_its_polygon_stays() -> None:
    xy = np.array([[0, 0], [9, 0], [9, 9], [0, 9], [0, 0], [3, 3], [4, 4]], float)
    shapes, _ = build_outlines(Rings(xy, np.array([0, 5, 7]), np.array([0, 2]), np.array([0, 1])), Repairs())
    assert shapes[0].area == 81
    assert not shapes[0].interiors


def test_repairs_are_counted_once() -> None:
    repairs = Repairs()
    bow = [(0, 0), (2, 2), (2, 0), (0, 2)]
    far = [(0, 0), (1e12, 0), (0, 5)]
    build_outlines(of_rings(bow, bow, far, [(0, 0)], [(0, 0), (1, 1), (2, 2)]), repairs)
    with pytest.warns(RepairWarning) as caught:
        repairs.warn("a.json")
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "a.json: 1 cell with coordinates that are not finite left out, 2 outlines without area left out, "
        "2 self-crossing outlines repaired"
    )
