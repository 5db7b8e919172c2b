import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import h_maxima
from skimage.segmentation import watershed

from sparseshot.models.instances import RISE, TOP, mask_heights, split


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
    height = np.full((9, 20), 50_000, np.uint16)
    height[:, 9:11] = 12_000
    labels = split(np.ones(height.shape, bool), height)
    assert labels.max() == 2
    assert labels[4, 0] != labels[4, 19]


def test_known_seeds_decide_how_many_there_are() -> None:
    mask = np.ones((9, 30), bool)
    mask[:, 20:22] = False
    seeds = np.zeros(mask.shape, np.int32)
    seeds[4, 3], seeds[4, 15] = 1, 2
    seeds[4, 20] = 3  # where no cell is seen
    labels = split(mask, np.full(mask.shape, 50_000, np.uint16), seeds)
    assert np.unique(labels[:, :20]).tolist() == [1, 2]
    assert not labels[:, 20:].any()


@pytest.mark.parametrize("seed", range(3))
def test_pixels_belong_to_the_peaks_of_a_watershed(seed: int) -> None:
    random = np.random.default_rng(seed)
    height = ndimage.gaussian_filter(random.random((150, 170)), 3)
    height = ((height - height.min()) / np.ptp(height) * TOP).astype(np.uint16)
    mask = height > 0.35 * TOP
    labels = split(mask, height)
    ground = np.where(mask, height, 0)
    peaks, count = ndimage.label(h_maxima(ground, RISE), np.ones((3, 3)))  # type: ignore[no-untyped-call]
    expected = watershed(TOP - ground, peaks, mask=mask)  # type: ignore[no-untyped-call]
    # A peak lower than RISE above the ground is none to scikit-image, and a cell of its own here.
    assert labels.max() >= count > 20
    same = 0
    for number in range(1, count + 1):
        values, sizes = np.unique(labels[expected == number], return_counts=True)
        same += int(sizes.max())
        assert ndimage.label(labels == values[sizes.argmax()])[1] == 1
    assert same > 0.98 * (expected > 0).sum()


@pytest.mark.parametrize(("gap", "cells"), [(50_000 - RISE + 1, 1), (50_000 - RISE, 2)])
def test_the_lower_of_two_peaks_decides(gap: int, cells: int) -> None:
    height = np.array([[30_000, TOP, gap, 50_000, 40_000]], np.uint16)
    assert split(np.ones(height.shape, bool), height).max() == cells


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
