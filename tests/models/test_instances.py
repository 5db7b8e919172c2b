import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from skimage.segmentation import watershed

from sparseshot.models.instances import SEED_HEIGHT, mask_heights, split


def blobs(seed: int, size: int, count: int) -> NDArray[np.bool_]:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    mask = np.zeros((size, size), bool)
    for cx, cy, r in zip(*random.uniform(0, size, (2, count)), random.uniform(3, 8, count), strict=True):
        mask |= (x - cx) ** 2 + (y - cy) ** 2 < r * r
    return mask


def by_shape(mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    return split(mask, mask_heights(mask, reach_px=6))


def pixels(labels: NDArray[np.int32]) -> set[frozenset[tuple[int, int]]]:
    return {
        frozenset(zip(*(axis.tolist() for axis in np.nonzero(labels == number)), strict=True))
        for number in np.unique(labels[labels > 0])
    }


def test_two_touching_discs_are_two() -> None:
    y, x = np.mgrid[:40, :60]
    mask = ((x - 20) ** 2 + (y - 20) ** 2 < 100) | ((x - 37) ** 2 + (y - 20) ** 2 < 100)
    labels = by_shape(mask)
    assert labels.max() == 2
    assert labels[20, 20] != labels[20, 37]
    assert ((labels > 0) == mask).all()
    assert ndimage.label(mask)[1] == 1


def test_a_long_nucleus_stays_one() -> None:
    y, x = np.mgrid[:40, :80]
    assert by_shape(((x - 40) / 30) ** 2 + ((y - 20) / 7) ** 2 < 1).max() == 1


def test_heights_separate_what_the_mask_does_not() -> None:
    height = np.full((9, 20), 200, np.uint8)
    height[:, 9:11] = 50
    labels = split(np.ones(height.shape, bool), height)
    assert labels.max() == 2
    assert labels[4, 0] != labels[4, 19]


def test_known_seeds_decide_how_many_there_are() -> None:
    mask = np.ones((9, 30), bool)
    mask[:, 20:22] = False
    seeds = np.zeros(mask.shape, np.int32)
    seeds[4, 3], seeds[4, 15] = 1, 2
    seeds[4, 20] = 3  # where no cell is seen
    labels = split(mask, np.full(mask.shape, 200, np.uint8), seeds)
    assert np.unique(labels[:, :20]).tolist() == [1, 2]
    assert not labels[:, 20:].any()


@pytest.mark.parametrize("seed", range(3))
def test_pixels_belong_to_the_seeds_of_a_watershed(seed: int) -> None:
    random = np.random.default_rng(seed)
    height = ndimage.gaussian_filter(random.random((150, 170)), 3)
    height = ((height - height.min()) / np.ptp(height) * 255).astype(np.uint8)
    mask = height > 90
    labels = split(mask, height)
    seeds, count = ndimage.label(mask & (height >= SEED_HEIGHT))
    expected = watershed(255 - height, seeds, mask=mask)  # type: ignore[no-untyped-call]
    reached = expected > 0
    assert ((labels > count) == (mask & ~reached)).all()
    assert (labels == expected)[reached].mean() > 0.99  # equal heights may go either way
    for number in range(1, labels.max() + 1):
        assert ndimage.label(labels == number)[1] == 1


@pytest.mark.parametrize("seed", range(5))
def test_an_object_is_the_same_through_every_window(seed: int) -> None:
    mask = blobs(seed, 220, 90)
    whole, part = by_shape(mask), by_shape(mask[30:190, 45:200])
    middle = np.array(ndimage.center_of_mass(part > 0, part, np.arange(1, part.max() + 1)))
    inside = (np.abs(middle - (80, 77)) < (40, 40)).all(axis=1)
    assert inside.sum() > 5
    labels = np.where(np.append(False, inside)[part], part, 0)
    assert {frozenset((y + 30, x + 45) for y, x in one) for one in pixels(labels)} <= pixels(whole)


def test_nothing_has_no_objects() -> None:
    assert by_shape(np.zeros((9, 9), bool)).max() == 0


def test_all_is_one_object() -> None:
    assert (by_shape(np.ones((30, 30), bool)) == 1).all()
