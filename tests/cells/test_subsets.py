import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from sparseshot.cells import Cells, choose_marks, nested_subsets, subset
from sparseshot.cells.keys import keys_of
from sparseshot.errors import InputError

TENTHS = [k / 10 for k in range(1, 11)]


@st.composite
def data_sets(draw: st.DrawFn) -> list[Cells]:
    tables = []
    for _ in range(draw(st.integers(0, 4))):
        label = draw(st.lists(st.integers(-1, 2), max_size=40))
        classes = draw(st.sampled_from([("a", "b", "c"), ("c", "a", "d")]))
        ids = draw(st.sampled_from([None, np.arange(len(label)), [f"cell {i}" for i in range(len(label))]]))
        tables.append(Cells(np.zeros((len(label), 2)), classes=classes, label=label, id=ids))
    return tables


@given(data_sets(), st.integers(-(2**70), 2**70))
def test_smaller_variants_lie_in_larger_ones_and_no_class_vanishes(tables: list[Cells], seed: int) -> None:
    masks = nested_subsets(tables, [0.0, 0.01, *TENTHS], seed=seed)
    for smaller, larger in zip([0.0, 0.01, *TENTHS], [0.01, *TENTHS], strict=False):
        for small, large in zip(masks[smaller], masks[larger], strict=True):
            assert not (small & ~large).any()
    whole = Cells.concatenate(tables).counts()
    for fraction in (0.01, *TENTHS):
        chosen = [table[mask] for table, mask in zip(tables, masks[fraction], strict=True)]
        for name, count in Cells.concatenate(chosen).counts().items():
            if whole.get(name):
                assert count == max(int(fraction * whole[name] + 0.5), 1)
    assert all(mask.all() for mask in masks[1.0])
    assert not any(mask.any() for mask in masks[0.0])


def test_the_choice_is_the_same_on_every_machine() -> None:
    numbers = Cells(np.zeros((20, 2)), id=np.arange(20))
    texts = Cells(np.zeros((20, 2)), id=[f"cell {i}" for i in range(20)])
    first, second = nested_subsets([numbers, texts], [0.2], seed=1)[0.2]
    assert np.flatnonzero(first).tolist() == [2, 5, 8, 15]
    assert np.flatnonzero(second).tolist() == [1, 6, 7, 15]


def test_it_depends_on_ids_not_on_rows_nor_on_the_other_fractions() -> None:
    cells = Cells(np.arange(400).reshape(200, 2), id=[f"cell {i}" for i in range(200)])
    mixed = np.random.default_rng(0).permutation(200)
    (chosen,) = subset(cells, 0.3, seed=5)
    (again,) = subset(cells[mixed], 0.3, seed=5)
    assert sorted(chosen.xy.tolist()) == sorted(again.xy.tolist())
    among_others = nested_subsets(cells, TENTHS, seed=5)[0.3]
    assert cells[among_others[0]].xy.tolist() == chosen.xy.tolist()


def test_seeds_tables_and_places_in_them_are_independent() -> None:
    cells = Cells(np.zeros((2000, 2)))
    a, b = nested_subsets([cells, cells], [0.5], seed=0)[0.5]
    (c,) = nested_subsets(cells, [0.5], seed=1)[0.5]
    for one, other in ((a, b), (a, c), (a[1:], a[:-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_equal_ids_are_still_counted_right() -> None:
    cells = Cells(np.zeros((10, 2)), id=np.zeros(10))
    assert [int(m[0].sum()) for m in nested_subsets(cells, [0.3, 0.7], seed=0).values()] == [3, 7]


def test_a_region_in_which_a_mark_was_left_out_is_not_exhaustive() -> None:
    region = shapely.box(0, 0, 9, 9)
    table = Cells(np.zeros((4, 2)), regions=[region])
    empty = Cells(np.zeros((0, 2)), regions=[region])
    assert [len(each.regions) for each in subset([table, empty], 0.5, seed=0)] == [0, 1]
    assert [len(each.regions) for each in subset([table, empty], 1.0, seed=0)] == [1, 1]
    assert len(choose_marks([table], 0.5, seed=0, marking="corner")[0].regions) == 0


@pytest.mark.parametrize("fraction", [-0.1, 1.1, np.nan])
def test_a_fraction_is_a_fraction(fraction: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        subset(Cells([[0, 0]]), fraction, seed=0)


def test_keys_are_splitmix_and_ignore_padding() -> None:
    assert keys_of(np.array([0])).tolist() == [0xE220A8397B1DCDAF]  # first output of SplitMix64 from 0
    assert keys_of(np.array([b"ab"])).tolist() == keys_of(np.array([b"ab"], "S40")).tolist()
    assert len(np.unique(keys_of(np.arange(-5000, 5000)))) == 10_000
