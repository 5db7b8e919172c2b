import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label

from sparseshot.cells import trace
from sparseshot.models.contours import TOLERANCE_PX, _polygons, contours


def pieces_of(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    pieces: NDArray[np.int32] = label(labels, background=0, connectivity=1)  # type: ignore[no-untyped-call]
    return pieces.astype(np.int32)


def all_contours(pieces: NDArray[np.int32], *, x0: int = 0, y0: int = 0) -> NDArray[np.object_]:
    return contours(np.pad(pieces, 1), np.ones(pieces.max(), bool), x0=x0, y0=y0)


@pytest.mark.parametrize("seed", range(3))
def test_contours_are_valid_and_near_the_pixels(seed: int) -> None:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:200, :200]
    labels = np.zeros((200, 200), np.int32)
    for number in range(1, 60):
        cx, cy, r = random.uniform((0, 0, 2), (200, 200, 12))
        labels[(x - cx) ** 2 + ((y - cy) * random.uniform(0.5, 1)) ** 2 < r * r] = number
    labels = pieces_of(labels)
    stairs, smooth = trace(labels)[2], all_contours(labels)
    assert shapely.is_valid(smooth).all()
    assert (shapely.get_type_id(smooth) == shapely.GeometryType.POLYGON).all()
    assert (shapely.get_num_interior_rings(smooth) == 0).all()
    whole = shapely.polygons(shapely.get_exterior_ring(stairs))
    assert shapely.hausdorff_distance(smooth, whole).max() < 1.1
    large = shapely.area(whole) > 40
    np.testing.assert_allclose(shapely.area(smooth)[large], shapely.area(whole)[large], rtol=0.15)


def test_the_place_is_added_before_anything_else() -> None:
    disc = (np.hypot(*np.mgrid[-9:10, -9:10]) < 7.3).astype(np.int32)
    here, there = all_contours(disc), all_contours(disc, x0=4096, y0=131_072)
    moved = shapely.transform(here, lambda xy: np.add(xy, (4096, 131_072)))
    assert shapely.equals_exact(moved, there).all()


def test_a_line_of_pixels_keeps_an_area() -> None:
    labels = np.zeros((5, 30), np.int32)
    labels[2, 2:28] = 1
    (line,) = all_contours(labels)
    assert line.is_valid
    assert line.area > 10


def test_nothing_has_no_contours() -> None:
    assert len(all_contours(np.zeros((3, 4), np.int32))) == 0


def test_only_the_wanted_ones_in_the_order_of_their_numbers() -> None:
    labels = np.zeros((12, 30), np.int32)
    labels[8:11, 2:8], labels[1:4, 10:16], labels[5:8, 20:26] = 1, 2, 3
    which = np.array([True, False, True])
    first, third = contours(np.pad(labels, 1), which, x0=100, y0=0)
    assert (first.centroid.x, first.centroid.y) == pytest.approx((105, 9.5), abs=0.2)
    assert (third.centroid.x, third.centroid.y) == pytest.approx((123, 6.5), abs=0.2)


@pytest.mark.parametrize("seed", range(3))
def test_no_pixel_edge_is_farther_than_the_tolerance(seed: int) -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random((150, 150)), 2) > 0.5
    labels = pieces_of(noise.astype(np.int32))
    shells = shapely.polygons(shapely.get_exterior_ring(shapely.get_parts(trace(labels)[2])))
    for shell, smooth in zip(shells, all_contours(labels), strict=True):
        corners = shapely.get_coordinates(shapely.segmentize(shell, 1.0))
        middles = shapely.points((corners[1:] + corners[:-1]) / 2)
        assert shapely.distance(smooth.exterior, middles).max() <= TOLERANCE_PX


def test_an_outline_that_simplification_would_break_stays_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    # At half a pixel no example is known; there are with a larger tolerance.
    monkeypatch.setattr("sparseshot.models.contours.TOLERANCE_PX", 3.0)
    noise = ndimage.gaussian_filter(np.random.default_rng(0).random((150, 150)), 1) > 0.49
    bordered = np.pad(pieces_of(noise.astype(np.int32)), 1)
    which = np.ones(bordered.max(), bool)
    broken = ~shapely.is_valid(_polygons(bordered, which, 3.0, np.zeros(2, np.int64)))
    assert 0 < broken.sum() < len(broken)
    assert shapely.is_valid(contours(bordered, which, x0=1, y0=1)).all()
