from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

from sparseshot.cells import Cells, rasterise, trace
from sparseshot.cells.rings import rings_of
from sparseshot.errors import InputError


def redrawn(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    values, xy, outline = trace(labels)
    drawn = rasterise(Cells(xy, outline=outline), labels.shape, by="instance")
    return np.concatenate([[0], values])[drawn]


@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(0, 2)))
@settings(deadline=None)
def test_drawing_what_was_traced_gives_the_image_back(labels: NDArray[np.int64]) -> None:
    values, xy, outline = trace(labels)
    assert values.tolist() == sorted(set(labels[labels > 0].tolist()))
    assert shapely.is_valid(outline).all()
    np.testing.assert_allclose(shapely.area(outline), [(labels == value).sum() for value in values])
    np.testing.assert_allclose(shapely.get_coordinates(shapely.centroid(outline)), xy, atol=1e-9)
    np.testing.assert_array_equal(redrawn(labels), labels)


def test_corner_contacts_make_valid_outlines() -> None:
    # Two pixels by a corner; two holes by a corner; a hole that touches the outside by a corner.
    apart = np.array([[1, 0], [0, 1]])
    holes = np.ones((4, 4), int)
    holes[1, 1] = holes[2, 2] = 0
    pinch = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1]])
    for labels, kind, rings in ((apart, "MultiPolygon", 2), (holes, "Polygon", 3), (pinch, "Polygon", 2)):
        outline = trace(labels)[2]
        assert shapely.is_valid(outline).all()
        assert outline[0].geom_type == kind
        assert len(rings_of(outline).rings) - 1 == rings


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.uint16, np.uint32, np.int64])
def test_every_integer_type_and_its_largest_label(dtype: type[np.generic]) -> None:
    labels = np.zeros((3, 3), dtype)
    top = 1 if dtype is np.bool_ else np.iinfo(dtype).max  # type: ignore[type-var]
    labels[1, 1] = top
    values, xy, _ = trace(labels)
    assert values.tolist() == [top]
    assert xy.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize("labels", [np.zeros((2, 2, 3), int), np.zeros((2, 2))])
def test_what_is_no_label_image_is_refused(labels: NDArray[np.generic]) -> None:
    with pytest.raises(InputError, match="label image"):
        trace(labels)


@pytest.mark.parametrize(("folder", "total"), [("tnbc", 4028), ("monuseg", 16957)])
def test_real_label_images_come_back_exactly(real_data: Path, folder: str, total: int) -> None:
    count = 0
    for path in sorted((real_data / folder / "labels_instance").glob("*.png")):
        labels = np.asarray(Image.open(path)).astype(np.int64)
        count += len(trace(labels)[0])
        np.testing.assert_array_equal(redrawn(labels), labels, err_msg=path.name)
    assert count == total


@given(st.lists(st.tuples(st.integers(-300, 1100), st.integers(-300, 1100)), min_size=3, max_size=8))
@settings(deadline=None)
def test_a_pixel_is_inside_if_its_centre_is(corners: list[tuple[int, int]]) -> None:
    outline = shapely.Polygon(np.array(corners) / 100)
    if not outline.is_valid or outline.area < 1e-3:
        return
    rows, columns = np.mgrid[:8, :8] + 0.5
    near = shapely.distance(outline.boundary, shapely.points(columns, rows)) < 1e-6  # rounding decides there
    expected = shapely.contains_xy(outline, columns, rows)
    drawn = rasterise(Cells([outline.centroid.coords[0]], outline=[outline]), (8, 8))
    if expected.any():
        np.testing.assert_array_equal(drawn[~near] > 0, expected[~near])


def test_neighbours_who_share_an_edge_neither_overlap_nor_leave_a_gap() -> None:
    left = shapely.Polygon([(0, 0), (3.3, 0), (7.1, 10), (0, 10)])
    right = shapely.Polygon([(7.1, 10), (3.3, 0), (10, 0), (10, 10)])
    first, second = (rasterise(Cells([[1, 1]], outline=[shape]), (10, 10)) for shape in (left, right))
    assert (first + second == 1).all()


def test_scale_and_origin_move_outlines_and_points_alike() -> None:
    cells = Cells([[104, 202], [109, 209]], outline=[shapely.box(100, 200, 108, 204), None])
    drawn = rasterise(cells, (5, 5), scale=0.5, origin=(100, 200), by="instance", radius_px=0.5)
    expected = np.zeros((5, 5), int)
    expected[:2, :4] = 1
    expected[4, 4] = 2
    np.testing.assert_array_equal(drawn, expected)


def test_no_mark_is_lost_for_being_small() -> None:
    speck = shapely.box(2.6, 2.6, 2.7, 2.7)
    drawn = rasterise(Cells([[2.65, 2.65], [0.1, 0.1]], outline=[speck, None]), (4, 4), radius_px=0.1)
    assert np.argwhere(drawn).tolist() == [[0, 0], [2, 2]]


@given(st.floats(-2, 10), st.floats(-2, 10), st.floats(0.8, 4))
@settings(deadline=None)
def test_a_disc_holds_the_centres_within_its_radius(x: float, y: float, radius: float) -> None:
    rows, columns = np.mgrid[:8, :8] + 0.5
    distance = np.hypot(columns - x, rows - y)
    sure = np.abs(distance - radius) > 1e-9
    drawn = rasterise(Cells([[x, y]]), (8, 8), radius_px=radius)
    np.testing.assert_array_equal(drawn[sure] > 0, (distance <= radius)[sure])


def test_far_and_huge_outlines_do_no_harm() -> None:
    far = shapely.box(1e300, 1e300, 1.1e300, 1.1e300)
    huge = shapely.box(-1e12, -1e12, 1e12, 1e12)
    assert rasterise(Cells([[1e300, 1e300]], outline=[far]), (3, 3)).sum() == 0
    assert rasterise(Cells([[0, 0]], outline=[huge]), (3, 3)).sum() == 9


def test_labels_are_drawn_as_one_and_up_and_the_later_row_wins() -> None:
    cells = Cells([[1.5, 1.5], [1.5, 1.5]], classes=("a", "b"), label=[0, 1])
    assert set(np.unique(rasterise(cells, (3, 3), radius_px=1)).tolist()) == {0, 2}
    with pytest.raises(InputError, match="1 of 2 cells have no class"):
        rasterise(Cells([[0, 0], [1, 1]], label=[0, -1]), (3, 3))
    with pytest.raises(InputError, match="scale"):
        rasterise(cells, (3, 3), scale=0)
    with pytest.raises(InputError, match="by is"):
        rasterise(cells, (3, 3), by="id")  # type: ignore[arg-type]
