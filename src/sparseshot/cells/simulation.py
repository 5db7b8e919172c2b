"""Sparse marks simulated from full ones: nested subsets, and ways in which people mark.

People rarely mark at random, so a simulation that only thins marks at random says little about real marks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.keys import keys_of
from sparseshot.cells.rings import expanded
from sparseshot.cells.table import Cells
from sparseshot.errors import InputError, unknown_name


def nested_subsets(
    tables: Cells | Sequence[Cells], fractions: Sequence[float], *, seed: int
) -> dict[float, list[NDArray[np.bool_]]]:
    """Choose nested fractions of the marks of a whole data set.

    The order of the marks depends only on the seed, the position of their table in the sequence, and their id
    (or row, if the table has no ids). A fraction f takes the first round(f·n) of the n marks of each class
    over all tables, and at least one. So every smaller variant is a subset of every larger one, no class
    vanishes first, and the choice does not depend on the machine or on the other fractions.

    Args:
        tables: the tables of the data set, e.g. one for each image; or a single one.
        fractions: in [0, 1].
        seed: of the choice.

    Returns:
        For each fraction a mask for each table: ``table[mask]`` is the variant.

    >>> cells = Cells(np.zeros((10, 2)), classes=("a", "b"), label=[0] * 8 + [1] * 2)
    >>> masks = nested_subsets(cells, [0.25, 0.5], seed=0)
    >>> [cells[masks[f][0]].counts() for f in (0.25, 0.5)]
    [{'a': 2, 'b': 1}, {'a': 4, 'b': 1}]
    """
    tables = [tables] if isinstance(tables, Cells) else list(tables)
    for fraction in fractions:
        if not 0 <= fraction <= 1:
            raise InputError(f"a fraction is {fraction}; give it between 0 and 1, e.g. 0.3 for 30 %")
    keys = np.concatenate(
        [np.empty(0, np.uint64), *(_keys(table, i, seed) for i, table in enumerate(tables))]
    )
    of_mark, sizes = strata(tables)
    order = np.lexsort((keys, of_mark))  # stable, so that of equal ids the first comes first
    rank = np.empty(len(keys), np.int64)
    rank[order] = expanded(sizes)[1]
    ends = np.cumsum([len(table) for table in tables])[:-1]
    masks = {}
    for f in fractions:
        counts = np.maximum(np.floor(f * sizes + 0.5).astype(np.int64), (f > 0) & (sizes > 0))
        masks[f] = np.split(rank < counts[of_mark], ends) if tables else []
    return masks


def subset(tables: Cells | Sequence[Cells], fraction: float, *, seed: int) -> list[Cells]:
    """Return one variant of a data set: its tables with a fraction of the marks, chosen by nested_subsets."""
    masks = nested_subsets(tables, [fraction], seed=seed)[fraction]
    return apply_masks([tables] if isinstance(tables, Cells) else tables, masks)


def apply_masks(tables: Sequence[Cells], masks: Sequence[NDArray[np.bool_]]) -> list[Cells]:
    """Return some marks of each table; where one is left out, no region is exhaustive any more."""
    return [
        table if mask.all() else replace(table[mask], regions=np.empty(0, object), region_notes=None)
        for table, mask in zip(tables, masks, strict=True)
    ]


def _keys(cells: Cells, table: int, seed: int) -> NDArray[np.uint64]:
    salt = int(keys_of(np.array([table]), salt=int(keys_of(np.array([seed]))[0]))[0])
    return keys_of(np.arange(len(cells)) if cells.id is None else cells.id, salt=salt)


def strata(tables: Sequence[Cells]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Number the classes of all tables by name, unclassified as the last, and count their marks."""
    names = sorted({name for table in tables for name in table.classes})
    number = {name: i for i, name in enumerate(names)}
    numbered = [
        np.array([*(number[name] for name in table.classes), len(names)], np.int16)[table.label]
        for table in tables
    ]
    of_mark = np.concatenate([np.empty(0, np.int16), *numbered])
    return of_mark, np.bincount(of_mark, minlength=len(names) + 1)


def choose_marks(
    tables: Sequence[Cells], fraction: float, *, seed: int, marking: str = "random"
) -> list[Cells]:
    """Keep a fraction of the marks of a data set, chosen as a person might have marked them.

    Args:
        tables: one for each image.
        fraction: in (0, 1].
        seed: of what is random: all of ``random``, the order of images in ``images``.
        marking: ``random``: each mark with the same chance; ``large``: the largest of the whole set;
            ``corner``: in each image those nearest to its upper left corner; ``images``: every cell of some
            images, none of the others; ``classes``: the most frequent classes first.

    >>> cells = Cells(np.array([[9.0, 9.0], [1.0, 1.0], [5.0, 5.0], [2.0, 3.0]]))
    >>> choose_marks([cells], 0.5, seed=0, marking="corner")[0].xy.tolist()
    [[1.0, 1.0], [2.0, 3.0]]
    """
    if not 0 < fraction <= 1:
        raise InputError(f"a fraction is {fraction}; give it above 0 and up to 1, e.g. 0.3 for 30 %")
    if marking == "random":
        return subset(tables, fraction, seed=seed)
    if marking not in ORDERS:
        raise InputError(unknown_name("marking", marking, MARKINGS))
    sizes = [len(table) for table in tables]
    order = ORDERS[marking](tables, seed)
    wanted = np.zeros(sum(sizes), bool)
    wanted[order[: max(1, round(fraction * len(order)))]] = True
    return apply_masks(tables, np.split(wanted, np.cumsum(sizes)[:-1]))


def _largest_first(tables: Sequence[Cells], seed: int) -> NDArray[np.intp]:  # noqa: ARG001
    if any(table.outline is None for table in tables):
        raise InputError("marks without outlines have no size; choose another marking than large")
    area = np.concatenate([shapely.area(table.outline) for table in tables])
    return np.argsort(-np.nan_to_num(area), kind="stable")


def _from_the_corner(tables: Sequence[Cells], seed: int) -> NDArray[np.intp]:  # noqa: ARG001
    """Order marks by their distance from the corner, in all images at the same pace."""
    ranks = [np.argsort(np.argsort(table.xy.sum(axis=1), kind="stable")) for table in tables]
    done = np.concatenate([rank / max(len(rank), 1) for rank in ranks])
    return np.argsort(done, kind="stable")


def _image_by_image(tables: Sequence[Cells], seed: int) -> NDArray[np.intp]:
    place = np.random.default_rng(seed).permutation(len(tables))
    return np.argsort(np.repeat(place, [len(table) for table in tables]), kind="stable")


def _class_by_class(tables: Sequence[Cells], seed: int) -> NDArray[np.intp]:  # noqa: ARG001
    of_mark, sizes = strata(tables)
    if np.count_nonzero(sizes) < 2:
        raise InputError("marks of one class cannot be chosen by class; choose another marking than classes")
    return np.lexsort((of_mark, -sizes[of_mark]))


ORDERS: Mapping[str, Callable[[Sequence[Cells], int], NDArray[np.intp]]] = MappingProxyType(
    {
        "large": _largest_first,
        "corner": _from_the_corner,
        "images": _image_by_image,
        "classes": _class_by_class,
    }
)
MARKINGS = ("random", *ORDERS)
"""Names of the ways of marking."""
