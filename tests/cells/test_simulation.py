"""Marks chosen as people choose them."""

import numpy as np
import pytest
import shapely

from sparseshot.cells import MARKINGS, Cells, choose_marks
from sparseshot.errors import InputError


def table(seed: int, n: int = 40) -> Cells:
    random = np.random.default_rng(seed)
    xy = random.uniform(0, 100, (n, 2))
    radius = random.uniform(2, 9, n)
    outline = shapely.buffer(shapely.points(xy), radius)
    return Cells(xy, outline=outline, classes=("a", "b"), label=(np.arange(n) % 4 == 0).astype(int))


TABLES = [table(0), table(1, 60), table(2, 20)]


@pytest.mark.parametrize("marking", MARKINGS)
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_a_fraction_is_kept_and_smaller_ones_lie_inside_larger_ones(marking: str, fraction: float) -> None:
    kept = choose_marks(TABLES, fraction, seed=3, marking=marking)
    assert sum(map(len, kept)) == pytest.approx(120 * fraction, abs=1)
    fewer = choose_marks(TABLES, fraction / 2, seed=3, marking=marking)
    for few, many in zip(fewer, kept, strict=True):
        assert {tuple(xy) for xy in few.xy.tolist()} <= {tuple(xy) for xy in many.xy.tolist()}


def test_the_largest_of_all_images() -> None:
    kept = choose_marks(TABLES, 0.25, seed=0, marking="large")
    areas = [shapely.area(t.outline) for t in kept]
    everything = np.sort(np.concatenate([shapely.area(t.outline) for t in TABLES]))
    assert np.concatenate(areas).min() == everything[-30]


def test_a_corner_of_every_image() -> None:
    kept = choose_marks(TABLES, 0.3, seed=0, marking="corner")
    for few, many in zip(kept, TABLES, strict=True):
        assert len(few) == pytest.approx(0.3 * len(many), abs=1)
        assert few.xy.sum(axis=1).max() == np.sort(many.xy.sum(axis=1))[len(few) - 1]


def test_images_whole_or_not_at_all_but_for_one() -> None:
    kept = choose_marks(TABLES, 0.6, seed=1, marking="images")
    shares = sorted(len(few) / len(many) for few, many in zip(kept, TABLES, strict=True))
    assert sum(0 < share < 1 for share in shares) <= 1
    other = choose_marks(TABLES, 0.6, seed=2, marking="images")
    assert [len(t) for t in other] != [len(t) for t in kept]


def test_the_most_frequent_class_first() -> None:
    kept = choose_marks(TABLES, 0.5, seed=0, marking="classes")
    assert all(t.counts().get("b", 0) == 0 for t in kept)


@pytest.mark.parametrize("marking", MARKINGS)
@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, np.nan])
def test_a_fraction_is_a_fraction(marking: str, fraction: float) -> None:
    with pytest.raises(InputError, match="a fraction is"):
        choose_marks(TABLES, fraction, seed=0, marking=marking)


def test_what_cannot_be_chosen() -> None:
    points = Cells(np.zeros((3, 2)))
    for marking, cure in (("large", "no size"), ("classes", "one class"), ("small", "Known are random")):
        with pytest.raises(InputError, match=cure):
            choose_marks([points], 0.5, seed=0, marking=marking)
