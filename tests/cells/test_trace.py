import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label

from sparseshot.cells import trace
from sparseshot.cells.trace import smooth_outlines


def pieces_of(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    pieces: NDArray[np.int32] = label(labels, background=0, connectivity=1)  # type: ignore[no-untyped-call]
    return pieces.astype(np.int32)


def crowd(seed: int) -> NDArray[np.int32]:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:200, :200]
    labels = np.zeros((200, 200), np.int32)
    for number in range(1, 90):
        cx, cy, r = random.uniform((0, 0, 2), (200, 200, 12))
        labels[(x - cx) ** 2 + ((y - cy) * random.uniform(0.5, 1)) ** 2 < r * r] = number
    return pieces_of(labels)


@pytest.mark.parametrize("seed", range(3))
def test_outlines_are_valid_near_the_pixels_and_do_not_overlap(seed: int) -> None:
    labels = crowd(seed)
    smooth, stairs = smooth_outlines(labels), trace(labels)[2]
    assert shapely.is_valid(smooth).all()
    assert (shapely.get_type_id(smooth) == shapely.GeometryType.POLYGON).all()
    assert shapely.hausdorff_distance(smooth, stairs).max() < 1.1
    large = shapely.area(stairs) > 40
    np.testing.assert_allclose(shapely.area(smooth)[large], shapely.area(stairs)[large], rtol=0.1)
    first, second = shapely.STRtree(smooth).query(smooth)
    pair = first < second
    assert pair.sum() > 20
    common = shapely.intersection(smooth[first[pair]], smooth[second[pair]])
    assert shapely.area(common).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_no_pixel_edge_is_farther_than_half_a_pixel(seed: int) -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random((150, 150)), 2) > 0.5
    labels = pieces_of(noise.astype(np.int32))
    for stairs, smooth in zip(trace(labels)[2], smooth_outlines(labels), strict=True):
        corners = shapely.get_coordinates(shapely.segmentize(stairs.exterior, 1.0))
        middles = shapely.points((corners[1:] + corners[:-1]) / 2)
        assert shapely.distance(smooth.exterior, middles).max() <= 0.5


def test_small_holes_are_filled_and_large_ones_are_not() -> None:
    labels = np.ones((30, 30), np.int32)
    labels[3:5, 3:5] = labels[10:20, 10:20] = 0
    labels[13:16, 13:16] = 2  # in the hole, and apart from the first
    around, inside = smooth_outlines(labels, hole_px=10)
    assert len(around.interiors) == 1
    assert around.area == pytest.approx(900 - 100, abs=2)
    assert shapely.area(shapely.intersection(around, inside)) == 0


def test_pixels_that_meet_at_a_corner_only() -> None:
    labels = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]], np.int32)
    (ring,) = smooth_outlines(labels)
    assert ring.is_valid
    assert len(ring.interiors) == 2


def test_a_line_of_pixels_keeps_an_area() -> None:
    labels = np.zeros((5, 30), np.int32)
    labels[2, 2:28] = 1
    (line,) = smooth_outlines(labels)
    assert line.is_valid
    assert line.area > 10


def test_outlines_come_in_the_order_of_their_numbers() -> None:
    labels = np.zeros((12, 30), np.int32)
    labels[8:11, 2:8], labels[1:4, 10:16], labels[5:8, 20:26] = 1, 2, 3
    x = [outline.centroid.x for outline in smooth_outlines(labels)]
    assert x == pytest.approx([5, 13, 23], abs=0.2)


def test_nothing_has_no_outlines() -> None:
    assert len(smooth_outlines(np.zeros((3, 4), np.int32))) == 0
