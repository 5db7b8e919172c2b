"""Reviewed regions: what a model proposed, corrected by a person, as certain marks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from sparseshot.cells import Cells
from sparseshot.cells.near import is_near
from sparseshot.errors import InputError
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.labelling import REJECTED

HIGHEST_PROPOSED = 0.9999
"""Highest score of a mark that a model proposed; marks made by hand have 1."""

_BY, _AT, _MODEL = "reviewed by", "reviewed at", "proposed by"


@dataclass(frozen=True)
class ReviewNote:
    """Who reviewed a region, when, and which model had proposed its cells.

    Attributes:
        by: name of the person.
        at: in ISO 8601.
        model: fingerprint of the model.
    """

    by: str
    at: str
    model: str

    def to_note(self) -> dict[str, str]:
        """Return the note of the region, as :attr:`Cells.region_notes` holds it."""
        name = f"Reviewed by {self.by}" if self.by else "Reviewed"
        return {"name": name, _BY: self.by, _AT: self.at, _MODEL: self.model}

    @classmethod
    def of(cls, note: Mapping[str, str]) -> Self | None:
        """Return the note of a reviewed region; None for a region that was drawn by hand."""
        return cls(note.get(_BY, ""), note[_AT], note.get(_MODEL, "")) if _AT in note else None


def review_region(
    region: shapely.Polygon,
    proposed: Cells,
    *,
    removed: ArrayLike = (),
    added: Cells | None = None,
    by: str = "",
    model: str = "",
    at: datetime | None = None,
) -> Cells:
    """Return the marks of a region that a person has declared done, and the region as exhaustive.

    Accepted predictions keep their score, below 1; marks made by hand have a score of 1, and rejected
    predictions are of class :data:`~sparseshot.models.labelling.REJECTED`. A rejected prediction
    within 3 µm of an added mark was moved, and is left out. So is what lies outside of the region.

    Args:
        region: in level-0 pixels.
        proposed: what the model found, with scores.
        removed: indices or a mask of the proposed cells that are not cells.
        added: cells that the model missed.
        by: name of the person.
        model: fingerprint of the model.
        at: when it was done; by default now.

    >>> proposed = Cells([[10, 10], [50, 50]], score=[0.9, 0.6], mpp=0.5)
    >>> more = Cells([[80, 20]], mpp=0.5)
    >>> done = review_region(shapely.box(0, 0, 99, 99), proposed, removed=[1], added=more)
    >>> done.counts(), is_proposed(done).tolist(), len(done.regions)
    ({'cell': 2, 'Rejected': 1}, [True, False, True], 1)
    """
    if not region.is_valid or region.is_empty or not isinstance(region, shapely.Polygon):
        raise InputError("a reviewed region is one valid polygon; draw it again")
    added = proposed[:0] if added is None else added
    if len(added) and added.mpp != proposed.mpp:
        raise InputError(f"added marks of {added.mpp} µm/px for a slide of {proposed.mpp}; give both in one")
    if proposed.score is None:
        raise InputError("the proposed cells have no scores; give those that a model found")
    wrong = _mask(removed, len(proposed))
    inside = shapely.contains_xy(region, proposed.xy)
    scored = _plain(replace(proposed, score=np.minimum(proposed.score, np.float32(HIGHEST_PROPOSED))))
    by_hand = _plain(replace(added, score=np.ones(len(added), np.float32)))[
        shapely.contains_xy(region, added.xy)
    ]
    rejected = scored[inside & wrong]
    rejected = rejected[_far(rejected, by_hand)].with_classes((*proposed.classes, REJECTED))
    rejected = replace(rejected, label=np.full(len(rejected), len(rejected.classes) - 1))
    note = ReviewNote(by, (at or datetime.now(UTC)).isoformat(timespec="seconds"), model)
    marks = Cells.concatenate([scored[inside & ~wrong], by_hand, rejected])
    marks = marks.with_classes([name for name in marks.classes if name != REJECTED or len(rejected)])
    return replace(marks, regions=np.array([region], object), region_notes=np.array([note.to_note()], object))


def add_review(marks: Cells, reviewed: Cells) -> Cells:
    """Return marks with those of a reviewed region.

    Earlier rejected predictions and accepted ones inside the region are replaced. Of a mark made by hand and
    an accepted prediction within 3 µm the former stays; of a mark and a rejected prediction, the latter,
    because the rejection is more recent.

    Args:
        marks: of the slide.
        reviewed: see :func:`review_region`.
    """
    mpp = marks.mpp or reviewed.mpp  # marks from QuPath carry none
    marks, reviewed = replace(marks, mpp=mpp), replace(reviewed, mpp=mpp)
    region = shapely.union_all(reviewed.regions)
    inside = shapely.contains_xy(region, marks.xy)
    kept = marks[~(inside & (is_proposed(marks) | is_rejected(marks)))]
    by_hand = shapely.contains_xy(region, kept.xy)
    denied = reviewed[is_rejected(reviewed)]
    kept = kept[~by_hand | _far(kept, denied)]
    fresh = reviewed[_far(reviewed, kept) | is_rejected(reviewed)]
    covered = shapely.covers(region, marks.regions) if len(marks.regions) else np.empty(0, bool)
    notes = None if marks.region_notes is None else marks.region_notes[~covered]
    kept = replace(kept, regions=marks.regions[~covered], region_notes=notes)
    if not len(kept.classes) or (not len(kept) and kept.classes == ("cell",)):
        kept = kept.with_classes(fresh.classes)
    return Cells.concatenate([_plain(kept), fresh])


def is_proposed(cells: Cells) -> NDArray[np.bool_]:
    """Return which marks are predictions that a person has accepted or rejected."""
    return np.zeros(len(cells), bool) if cells.score is None else np.asarray(cells.score < 1)


def is_rejected(cells: Cells) -> NDArray[np.bool_]:
    """Return which marks are rejected predictions."""
    if REJECTED not in cells.classes:
        return np.zeros(len(cells), bool)
    return np.asarray(cells.label == cells.classes.index(REJECTED))


def _plain(cells: Cells) -> Cells:
    """Return marks without ids, which are not unique between what was proposed and what was added."""
    return replace(cells, id=None)


def _far(cells: Cells, others: Cells) -> NDArray[np.bool_]:
    """Return which cells have none of the others within 3 µm."""
    return ~is_near(cells.xy, others.xy, radius=MATCH_RADIUS_UM / (cells.mpp or others.mpp or 1.0))


def _mask(rows: ArrayLike, count: int) -> NDArray[np.bool_]:
    index = np.asarray(rows)
    if index.dtype == bool:
        if index.shape != (count,):
            raise InputError(f"removed has shape {index.shape} for {count} proposed cells")
        return index
    mask = np.zeros(count, bool)
    index = index.astype(np.intp).reshape(-1)
    wrong = index[(index < 0) | (index >= count)]
    if len(wrong):
        raise InputError(f"removed names cell {wrong[0]}, but {count} were proposed")
    mask[index] = True
    return mask
