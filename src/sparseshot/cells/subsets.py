"""Nested sparse variants of a data set."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.keys import keys_of
from sparseshot.cells.rings import expanded
from sparseshot.cells.table import Cells
from sparseshot.errors import InputError


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
