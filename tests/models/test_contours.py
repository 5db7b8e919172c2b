import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from skimage.measure import label

from sparseshot.cells import trace
from sparseshot.models.contours import contours


def pieces_of(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    pieces: NDArray[np.int32] = label(labels, background=0, connectivity=1)  # type: ignore[no-untyped-call]
    return pieces.astype(np.int32)


@pytest.mark.parametrize("seed", range(3))
def test_contours_are_valid_and_near_the_pixels(seed: int) -> None:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:200, :200]
    labels = np.zeros((200, 200), np.int32)
    for number in range(1, 60):
        cx, cy, r = random.uniform((0, 0, 2), (200, 200, 12))
        labels[(x - cx) ** 2 + ((y - cy) * random.uniform(0.5, 1)) ** 2 < r * r] = number
    labels = pieces_of(labels)
    stairs, smooth = trace(labels)[2], contours(labels, x0=0, y0=0)
    assert shapely.is_valid(smooth).all()
    assert (shapely.get_type_id(smooth) == shapely.GeometryType.POLYGON).all()
    assert (shapely.get_num_interior_rings(smooth) == 0).all()
    whole = shapely.polygons(shapely.get_exterior_ring(stairs))
    assert shapely.hausdorff_distance(smooth, whole).max() < 1.1
    large = shapely.area(whole) > 40
    np.testing.assert_allclose(shapely.area(smooth)[large], shapely.area(whole)[large], rtol=0.15)


def test_the_place_is_added_before_anything_else() -> None:
    disc = (np.hypot(*np.mgrid[-9:10, -9:10]) < 7.3).astype(np.int32)
    here, there = contours(disc, x0=0, y0=0), contours(disc, x0=4096, y0=131_072)
    moved = shapely.transform(here, lambda xy: np.add(xy, (4096, 131_072)))
    assert shapely.equals_exact(moved, there).all()


def test_a_line_of_pixels_keeps_an_area() -> None:
    labels = np.zeros((5, 30), np.int32)
    labels[2, 2:28] = 1
    (line,) = contours(labels, x0=0, y0=0)
    assert line.is_valid
    assert line.area > 10


def test_nothing_has_no_contours() -> None:
    assert len(contours(np.zeros((3, 4), np.int32), x0=0, y0=0)) == 0
