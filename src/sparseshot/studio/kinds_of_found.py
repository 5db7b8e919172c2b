"""Kinds of found cells, learned anew from the marks of named classes after each click."""

import warnings
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.table import GREY, PALETTE
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


@dataclass(frozen=True, eq=False)
class KindEvidence:
    """Features of marked found cells of a slide, of some that nobody marked, and of those around them.

    Attributes:
        features: ``(N, F)``.
        target: ``(N,)`` see :func:`~sparseshot.models.kinds.learn_kinds`; of unknown kind are those that are
            only around others.
        um: ``(N, 2)`` their places.
        unmarked: number of unmarked cells of the slide.
    """

    features: NDArray[np.floating]
    target: NDArray[np.int64]
    um: NDArray[np.float64]
    unmarked: int

    @classmethod
    def of(
        cls, found: FoundCells, items: list[Item], kinds: tuple[str, ...], *, threshold: float
    ) -> "KindEvidence | None":
        """Look up among the found cells of a slide what marks say of kinds; None without features."""
        if found.features is None or not len(found):
            return None
        names = tuple(dict.fromkeys(item["class"] for item in items))
        marks = Cells(
            np.array([place_of(item) for item in items], float).reshape(-1, 2),
            classes=names,
            label=[names.index(item["class"]) for item in items],
            mpp=found.mpp,
        )
        reach = 2 * MATCH_RADIUS_UM / found.mpp
        near = [
            found.rows_in((x - reach, y - reach, x + reach, y + reach), threshold=0)
            for x, y in marks.xy.tolist()
        ]
        rows = np.unique(np.concatenate([*near, np.empty(0, np.intp)]))
        said = kind_targets(Cells(found.xy[rows], mpp=found.mpp), marks, kinds)
        rows, said = rows[said != UNMARKED], said[said != UNMARKED]
        is_sure, um = found.score >= np.float32(threshold), _um(found.xy, found.mpp)
        is_free = is_sure.copy()
        is_free[rows] = False
        unmarked = np.flatnonzero(is_free)
        target = np.full(len(found), UNKNOWN_KIND)
        target[unmarked[:: -(-len(unmarked) // _MOST_UNMARKED) or 1]] = UNMARKED
        target[rows] = said
        kept = near_rows(um, np.flatnonzero(target != UNKNOWN_KIND))
        kept = kept[is_sure[kept] | (target[kept] != UNKNOWN_KIND)]
        return cls(found.features[kept], target[kept], um[kept], len(unmarked))


def says_kind(item: Item) -> bool:
    """Return whether an item tells the kind of a cell, or that it is of no marked one."""
    return is_cell(item) and not is_any_cell(item["class"])


def kinds_of(items: list[Item]) -> tuple[str, ...]:
    """Return the kinds that marks name."""
    names = tuple(dict.fromkeys(item["class"] for item in items if "class" in item))
    table = Cells(np.zeros((len(names), 2)), classes=names, label=range(len(names)))
    return named_kinds([table], leave_out=(NEGATIVE, REJECTED))


def learned(evidence: list[KindEvidence], kinds: tuple[str, ...]) -> KindHead | None:
    """Learn kinds from several slides; None where no found cell is marked."""
    if not evidence:
        return None
    target = np.concatenate([each.target for each in evidence])
    with warnings.catch_warnings(action="ignore"):
        try:
            return learn_kinds(
                np.concatenate([each.features for each in evidence]),
                target,
                kinds,
                um=side_by_side([each.um for each in evidence]),
                sampled=(target == UNMARKED).sum() / max(1, sum(each.unmarked for each in evidence)),
            )
        except InputError:
            return None


def with_kinds(found: FoundCells, head: KindHead, colors: dict[str, str], *, threshold: float) -> FoundCells:
    """Return found cells with the kinds that a head tells; those of the threshold surround others."""
    assert found.features is not None
    counted = found.score >= np.float32(threshold)
    label = head.logits(found.features, _um(found.xy, found.mpp), counted).argmax(axis=1).astype(np.int16)
    return found.relabelled(label, head.names, _rgb(head.names, colors))


def assigned(
    cells: Cells,
    features: NDArray[np.floating],
    head: KindHead,
    colors: dict[str, str],
    *,
    mpp: float,
    threshold: float,
) -> Cells:
    """Return a table of found cells with the same kinds, and their probabilities as measurements."""
    counted = None if cells.score is None else cells.score >= np.float32(threshold)
    named = head.named(cells, head.logits(features, _um(cells.xy, mpp), counted))
    rgb = _rgb(head.names, colors)
    return replace(named, colors=tuple((r, g, b) for r, g, b in rgb.tolist()))


def _um(xy: NDArray[np.floating], mpp: float) -> NDArray[np.float64]:
    """Return places in µm, as exactly as they are kept in memory."""
    return xy.astype(np.float32).astype(np.float64) * mpp


def faint(names: tuple[str, ...]) -> dict[str, str]:
    """Return pale colours of kinds that nobody marked."""
    pale = (((np.array(PALETTE) + 255) // 2).astype(np.uint8)).tolist()
    return {name: "#" + bytes(color).hex() for name, color in zip(names, cycle(pale), strict=False)}


def _rgb(names: tuple[str, ...], colors: dict[str, str]) -> NDArray[np.uint8]:
    """Return ``(C, 3)`` the colours of classes; those of none are grey."""
    grey = "#" + bytes(GREY).hex()
    return np.array([tuple(bytes.fromhex(colors.get(name, grey)[1:])) for name in names], np.uint8)
