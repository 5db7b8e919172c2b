import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from sparseshot.models.instances import _LEVELS_PER_PX, _measure_heights, _without_holes, split


def blobs(seed: int, size: int, count: int) -> NDArray[np.bool_]:
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    mask = np.zeros((size, size), bool)
    for cx, cy, r in zip(*random.uniform(0, size, (2, count)), random.uniform(3, 8, count), strict=True):
        mask |= (x - cx) ** 2 + (y - cy) ** 2 < r * r
    return mask


def outlines(labels: NDArray[np.int32]) -> set[frozenset[tuple[int, int]]]:
    return {
        frozenset(zip(*(axis.tolist() for axis in np.nonzero(labels == number)), strict=True))
        for number in range(1, labels.max() + 1)
    }


def test_two_touching_discs_are_two() -> None:
    y, x = np.mgrid[:40, :60]
    mask = ((x - 20) ** 2 + (y - 20) ** 2 < 100) | ((x - 37) ** 2 + (y - 20) ** 2 < 100)
    objects = split(mask, waist_px=0.4, hole_px=0, cap_px=50)
    assert objects.labels.max() == 2
    assert sorted(objects.peak.tolist()) == [[20, 20], [20, 37]]
    assert (objects.labels > 0).sum() == mask.sum() == objects.area_px.sum()
    assert ndimage.label(mask)[1] == 1


def test_a_long_nucleus_stays_one() -> None:
    y, x = np.mgrid[:40, :80]
    mask = ((x - 40) / 30) ** 2 + ((y - 20) / 7) ** 2 < 1
    objects = split(mask, waist_px=0.4, hole_px=0, cap_px=50)
    assert objects.labels.max() == 1
    assert 29 <= objects.reach_px[0] <= 59


def test_small_holes_are_filled_and_large_ones_and_bays_are_not() -> None:
    mask = np.zeros((40, 40), bool)
    mask[5:35, 5:35] = True
    mask[10:12, 10:12] = False
    mask[20:26, 20:26] = False
    mask[5:8, 30] = False
    labels = split(mask, waist_px=9, hole_px=10, cap_px=50).labels
    assert labels[10, 10] > 0
    assert labels[22, 22] == 0
    assert labels[6, 30] == 0


@pytest.mark.parametrize("hole_px", [2, 3, 7, 30, 10_000])
def test_holes_are_those_of_scipy(hole_px: int) -> None:
    random = np.random.default_rng(hole_px)
    for density in (0.45, 0.6, 0.8):
        mask = ndimage.uniform_filter(random.random((90, 110)), 3) < density
        ground, count = ndimage.label(~mask)
        small = np.bincount(ground.ravel(), minlength=count + 1) < hole_px
        small[0] = True
        for side in (ground[0], ground[-1], ground[:, 0], ground[:, -1]):
            small[side] = False
        np.testing.assert_array_equal(_without_holes(mask, hole_px), mask | small[ground])


@pytest.mark.parametrize("cap", [3, 100])
def test_heights_are_smoothed_distances_of_scipy(cap: int) -> None:
    mask = np.pad(blobs(0, 120, 60), 1)
    squared = np.rint(ndimage.distance_transform_edt(mask) ** 2)
    level = (np.minimum(np.sqrt(squared), cap) * _LEVELS_PER_PX).astype(int)
    smooth = ndimage.convolve(level, np.outer((1, 2, 1), (1, 2, 1)), mode="constant") // 16
    height = np.zeros(mask.shape, np.uint16)
    _measure_heights(mask[1:-1, 1:-1], cap, height)
    np.testing.assert_array_equal(height, np.where(mask, smooth, 0))


@pytest.mark.parametrize("seed", range(5))
def test_an_object_is_the_same_through_every_window(seed: int) -> None:
    mask = blobs(seed, 220, 90)
    whole = split(mask, waist_px=0.4, hole_px=20, cap_px=60)
    part = split(mask[30:190, 45:200], waist_px=0.4, hole_px=20, cap_px=60)
    inside = (np.abs(part.peak - (80, 77)) < (40, 40)).all(axis=1)
    assert inside.sum() > 5
    labels = np.where(np.append(False, inside)[part.labels], part.labels, 0)
    moved = {frozenset((y + 30, x + 45) for y, x in one) for one in outlines(labels)}
    assert moved - {frozenset()} <= outlines(whole.labels)


def test_tallies_add_up_the_pixels_of_each_object() -> None:
    mask = blobs(3, 100, 20)
    objects = split(mask, waist_px=0.4, hole_px=0, cap_px=50)
    random = np.random.default_rng(0)
    values = random.integers(0, 10_000, mask.shape).astype(np.int16)
    kinds = random.integers(0, 3, mask.shape).astype(np.uint8)
    sums, votes = objects.tallies(values, kinds, count=3)
    for number in range(1, objects.labels.max() + 1):
        own = objects.labels == number
        assert sums[number - 1] == values[own].sum(dtype=np.int64)
        assert votes[number - 1].tolist() == np.bincount(kinds[own], minlength=3).tolist()


def test_nothing_has_no_objects() -> None:
    objects = split(np.zeros((9, 9), bool), waist_px=0.4, hole_px=5, cap_px=9)
    assert objects.labels.max() == 0
    assert objects.peak.shape == (0, 2)


def test_all_is_one_object() -> None:
    assert split(np.ones((30, 30), bool), waist_px=0.4, hole_px=5, cap_px=90).area_px.tolist() == [900]
