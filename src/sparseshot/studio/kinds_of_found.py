"""Kinds of found cells, learned anew from the marks of named classes after each click."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.table import PALETTE
from sparseshot.errors import InputError
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.kind_head import near_rows, side_by_side
from sparseshot.models.kinds import (
    UNKNOWN_KIND,
    UNMARKED,
    KindHead,
    is_any_cell,
    kind_targets,
    learn_kinds,
    named_kinds,
)
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.decided import is_cell
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import NEGATIVE, Item, place_of

_MOST_UNMARKED = 2500
"""Unmarked cells of a slide that are learned from: half as many as elsewhere, in half the time."""


def says_kind(item: Item) -> bool:
    """Return whether an item tells the kind of a cell, or that it is of no marked one."""
    return is_cell(item) and not is_any_cell(item["class"])


def kinds_of(items: list[Item]) -> tuple[str, ...]:
    """Return the kinds that marks name."""
    names = tuple(dict.fromkeys(item["class"] for item in items if "class" in item))
    table = Cells(np.zeros((len(names), 2)), classes=names, label=range(len(names)))
    return named_kinds([table], leave_out=(NEGATIVE, REJECTED))


def learned(
    slides: Sequence[tuple[FoundCells, list[Item], float]], kinds: tuple[str, ...]
) -> KindHead | None:
    """Learn kinds from several slides; None where no found cell is marked.

    Args:
        slides: found cells, marks that say something about kinds, and the threshold of each.
        kinds: that the marks name.
    """
    parts = [_said(*each, kinds) for each in slides if each[0].features is not None and len(each[0])]
    if not parts:
        return None
    features, targets, um, unmarked = zip(*parts, strict=True)
    target = np.concatenate(targets)
    with warnings.catch_warnings(action="ignore"):
        try:
            return learn_kinds(
                np.concatenate(features),
                target,
                kinds,
                um=side_by_side(um),
                sampled=(target == UNMARKED).sum() / max(1, sum(unmarked)),
            )
        except InputError:
            return None


def _said(
    found: FoundCells, items: list[Item], threshold: float, kinds: tuple[str, ...]
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.float64], int]:
    """Return features, target and places of marked cells, of some unmarked ones, and of those around them.

    Of unknown kind are those that are only around others. The number is that of all unmarked cells.
    """
    assert found.features is not None
    names = tuple(dict.fromkeys(item["class"] for item in items))
    label = [names.index(item["class"]) for item in items]
    marks = Cells([place_of(item) for item in items], classes=names, label=label, mpp=found.mpp)
    reach = 2 * MATCH_RADIUS_UM / found.mpp
    near = [
        found.rows_in((x - reach, y - reach, x + reach, y + reach), threshold=0) for x, y in marks.xy.tolist()
    ]
    rows = np.unique(np.concatenate([*near, np.empty(0, np.intp)]))
    said = kind_targets(found.cells[rows], marks, kinds)
    rows, said = rows[said != UNMARKED], said[said != UNMARKED]
    is_sure, um = found.score >= np.float32(threshold), found.cells.xy * found.mpp
    is_free = is_sure.copy()
    is_free[rows] = False
    unmarked = np.flatnonzero(is_free)
    target = np.full(len(found), UNKNOWN_KIND)
    target[unmarked[:: -(-len(unmarked) // _MOST_UNMARKED) or 1]] = UNMARKED
    target[rows] = said
    kept = near_rows(um, np.flatnonzero(target != UNKNOWN_KIND))
    kept = kept[is_sure[kept] | (target[kept] != UNKNOWN_KIND)]
    return found.features[kept], target[kept], um[kept], len(unmarked)


def with_kinds(cells: Cells, features: NDArray[np.floating], head: KindHead, *, threshold: float) -> Cells:
    """Return found cells with the kinds that a head tells; those of the threshold surround others."""
    counted = None if cells.score is None else cells.score >= np.float32(threshold)
    return head.named(cells, head.logits(features, cells.xy * (cells.mpp or 1.0), counted))


def index_with_kinds(found: FoundCells, head: KindHead, *, threshold: float) -> FoundCells:
    """Return an index of found cells with the kinds that a head tells, without their probabilities."""
    assert found.features is not None
    cells = with_kinds(found.cells, found.features, head, threshold=threshold)
    return replace(found, cells=replace(cells, measurements={}))


def faint(head: KindHead) -> KindHead:
    """Return a head that tells kinds that nobody marked, in pale colours."""
    pale = ((np.resize(PALETTE, (len(head.names), 3)) + 255) // 2).astype(np.uint8).tolist()
    return replace(head, is_guess=False, colors=tuple("#" + bytes(color).hex() for color in pale))
