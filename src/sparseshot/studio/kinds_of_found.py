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
from sparseshot.models.kinds import UNMARKED, KindHead, kind_targets, learn_kinds, named_kinds
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.found_cells import FoundCells
from sparseshot.studio.marks import NEGATIVE, Item, place_of

_MOST_UNMARKED = 2500
"""Unmarked cells of a slide that are learned from: half as many as elsewhere, in half the time."""

_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class KindEvidence:
    """Features of marked found cells of a slide, and of some that nobody marked.

    Attributes:
        features: ``(N, F)``.
        target: ``(N,)`` see :func:`~sparseshot.models.kinds.learn_kinds`.
    """

    features: NDArray[np.floating]
    target: NDArray[np.int64]

    @classmethod
    def of(
        cls, found: FoundCells, items: list[Item], kinds: tuple[str, ...], *, threshold: float
    ) -> "KindEvidence | None":
        """Look the marks of a slide up among its found cells; None where there are no features."""
        if found.features is None or not len(found):
            return None
        named = [item for item in items if item.get("class") in kinds]
        marks = Cells(
            np.array([place_of(item) for item in named], float).reshape(-1, 2),
            classes=kinds,
            label=[kinds.index(item["class"]) for item in named],
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
        sure = np.flatnonzero(found.score >= threshold)
        unmarked = np.setdiff1d(sure[:: -(-len(sure) // _MOST_UNMARKED) or 1], rows)
        rows = np.concatenate([rows, unmarked])
        target = np.concatenate([said, np.full(len(unmarked), UNMARKED)])
        return cls(found.features[rows].astype(np.float32), target)


def kinds_of(items: list[Item]) -> tuple[str, ...]:
    """Return the kinds that marks name."""
    names = tuple(dict.fromkeys(item["class"] for item in items if "class" in item))
    table = Cells(np.zeros((len(names), 2)), classes=names, label=range(len(names)))
    return named_kinds([table], leave_out=(NEGATIVE, REJECTED))


def learned(evidence: list[KindEvidence], kinds: tuple[str, ...]) -> KindHead | None:
    """Learn kinds from several slides; None where no found cell is marked."""
    if not evidence:
        return None
    with warnings.catch_warnings(action="ignore"):
        try:
            return learn_kinds(
                np.concatenate([each.features for each in evidence]),
                np.concatenate([each.target for each in evidence]),
                kinds,
            )
        except InputError:
            return None


def with_kinds(found: FoundCells, head: KindHead, colors: dict[str, str]) -> FoundCells:
    """Return found cells with the kinds that a head tells."""
    assert found.features is not None
    label = np.empty(len(found), np.int16)
    for start in range(0, len(found), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        label[part] = head.logits(found.features[part].astype(np.float32)).argmax(axis=1)
    return found.relabelled(label, head.names, _rgb(head.names, colors))


def assigned(cells: Cells, features: NDArray[np.floating], head: KindHead, colors: dict[str, str]) -> Cells:
    """Return a table of found cells with kinds, and their probabilities as measurements."""
    rgb = _rgb(head.names, colors)
    return replace(head.assign(cells, features), colors=tuple((r, g, b) for r, g, b in rgb.tolist()))


def faint(names: tuple[str, ...]) -> dict[str, str]:
    """Return pale colours of kinds that nobody marked."""
    pale = (((np.array(PALETTE) + 255) // 2).astype(np.uint8)).tolist()
    return {name: "#" + bytes(color).hex() for name, color in zip(names, cycle(pale), strict=False)}


def _rgb(names: tuple[str, ...], colors: dict[str, str]) -> NDArray[np.uint8]:
    """Return ``(C, 3)`` the colours of classes; those of none are grey."""
    grey = "#" + bytes(GREY).hex()
    return np.array([tuple(bytes.fromhex(colors.get(name, grey)[1:])) for name in names], np.uint8)
