"""Simulated ways of marking: at random, the large cells, one corner, some images, some classes.

People rarely mark at random, so a simulation that only thins marks at random says little about real marks.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.subsets import apply_masks, strata, subset
from sparseshot.cells.table import Cells
from sparseshot.errors import InputError, unknown_name


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
