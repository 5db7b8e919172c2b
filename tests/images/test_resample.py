import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparseshot.images.resample import resample

IMAGE = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)


def slow_area_mean(image: NDArray[np.uint8], ratio: float, column: int, row: int) -> NDArray[np.float64]:
    """Weigh every pixel of the image by the part of it that lies in the output pixel."""
    x, y = np.arange(image.shape[1]), np.arange(image.shape[0])
    across = np.clip(np.minimum(x + 1, (column + 1) * ratio) - np.maximum(x, column * ratio), 0, None)
    down = np.clip(np.minimum(y + 1, (row + 1) * ratio) - np.maximum(y, row * ratio), 0, None)
    mean: NDArray[np.float64] = np.einsum("yxc,x,y->c", image.astype(float), across, down) / ratio**2
    return mean


@pytest.mark.parametrize("ratio", [1.0, 1.0173, 1.5, 2.0, 2.7, 3.0, 7.31])
def test_each_pixel_is_the_mean_over_its_area(ratio: float) -> None:
    size = (int(83 / ratio), int(61 / ratio))
    got = resample(IMAGE, ratio, size=size)
    want = [[slow_area_mean(IMAGE, ratio, c, r) for c in range(size[0])] for r in range(size[1])]
    assert np.abs(got - np.array(want)).max() <= 0.501


def test_one_to_one_is_the_image_itself() -> None:
    np.testing.assert_array_equal(resample(IMAGE, 1.0, size=(83, 61)), IMAGE)


def test_below_one_interpolates_between_pixel_centres() -> None:
    ramp = np.repeat(np.array([0, 100, 200], np.uint8), 3).reshape(1, 3, 3)
    assert resample(ramp, 0.5, size=(6, 1))[0, :, 0].tolist() == [0, 25, 75, 125, 175, 200]


@pytest.mark.parametrize("ratio", [0.37, 0.5, 1.0, 1.7, 4.0, 5.2])
def test_a_constant_stays_constant(ratio: float) -> None:
    for value in (0, 1, 127, 254, 255):
        assert (resample(np.full((40, 40, 3), value, np.uint8), ratio, size=(7, 7)) == value).all()


@settings(deadline=None, max_examples=60)
@given(
    ratio=st.one_of(st.floats(0.2, 9), st.integers(1, 9).map(float)),
    data=st.data(),
)
def test_a_piece_equals_the_same_piece_of_the_whole(ratio: float, data: st.DataObject) -> None:
    width, height = max(1, int(83 / ratio)), max(1, int(61 / ratio))
    whole = resample(IMAGE, ratio, size=(width, height))
    c0 = data.draw(st.integers(0, width - 1))
    r0 = data.draw(st.integers(0, height - 1))
    c1 = data.draw(st.integers(c0 + 1, width))
    r1 = data.draw(st.integers(r0 + 1, height))
    x0, y0 = max(0, int(c0 * ratio) - 1), max(0, int(r0 * ratio) - 1)
    x1, y1 = int(c1 * ratio) + 2, int(r1 * ratio) + 2
    piece = resample(IMAGE[y0:y1, x0:x1], ratio, size=(c1 - c0, r1 - r0), first=(c0, r0), origin=(x0, y0))
    np.testing.assert_array_equal(piece, whole[r0:r1, c0:c1])


def test_beyond_the_image_its_edge_is_repeated() -> None:
    for ratio in (2.0, 2.5):
        far = resample(IMAGE, ratio, size=(3, 3), first=(50, 50))
        np.testing.assert_array_equal(far, np.broadcast_to(IMAGE[-1, -1], (3, 3, 3)))


def test_very_large_ratios_do_not_overflow() -> None:
    bright = np.full((600, 600, 3), 255, np.uint8)
    for ratio in (257.0, 258.0, 600.0):
        assert (resample(bright, ratio, size=(1, 1)) == 255).all()
    line = np.full((1, 5000, 3), 250, np.uint8)
    assert (resample(line, 5000.0, size=(1, 1)) == 250).all()
