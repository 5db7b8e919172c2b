"""Decisions about found cells: accepted or rejected cells, and reviewed regions."""

from collections.abc import Sequence

import numpy as np
import shapely

from sparseshot.active import add_review, is_proposed, review_region
from sparseshot.cells import Cells
from sparseshot.cells.near import is_near
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.labelling import REJECTED
from sparseshot.studio.journal import Event
from sparseshot.studio.marks import NEGATIVE, Item, MarkBook, items_of, place_of


def judged(book: MarkBook, slide: str, found: Cells, *, accept: bool) -> list[Item]:
    """Return found cells as marks with their scores, without those within 3 µm of a mark.

    Args:
        book: known marks.
        slide: of the cells.
        found: cells that a person has accepted or rejected.
        accept: whether they are cells; otherwise they become certain negatives.
    """
    places = [place_of(item) for item in book.items(slide) if "class" in item]
    found = found[~is_near(found.xy, places, radius=MATCH_RADIUS_UM / (found.mpp or 1.0))]
    items = items_of(found)
    if accept:
        return items
    return [{"class": NEGATIVE, "at": [round(x, 2), round(y, 2)], "score": item.get("score", 0.9999)}
            for item, (x, y) in zip(items, found.xy.tolist(), strict=True)]  # fmt: skip


def reviewed(
    book: MarkBook, slide: str, region: shapely.Polygon, found: Cells, *, by: str, model: str
) -> Event:
    """Return the change of the marks that makes a region exhaustive.

    Cells found there are accepted, except where a mark says that there is none.

    Args:
        book: known marks.
        slide: of the region.
        region: in level-0 pixels.
        found: what the model found in it.
        by: name of the person.
        model: fingerprint of the model.
    """
    before = book.items(slide)
    marks = book.cells(slide, mpp=found.mpp)
    is_negative = np.isin(np.array([*marks.classes, ""])[marks.label], (NEGATIVE, REJECTED))
    removed = is_near(found.xy, marks.xy[is_negative], radius=MATCH_RADIUS_UM / (found.mpp or 1.0))
    by_hand = marks[~(is_negative | is_proposed(marks))]
    done = review_region(region, found, removed=removed, added=by_hand, by=by, model=model)
    after = items_of(add_review(marks, done))
    return {"slide": slide, **_difference(before, after)}


def _difference(before: Sequence[Item], after: Sequence[Item]) -> Event:
    """Return the items to remove and to add."""
    wanted = {_content(item): item for item in after}
    known = {_content(item): item["id"] for item in before}
    return {
        "remove": [name for content, name in known.items() if content not in wanted],
        "add": [item for content, item in wanted.items() if content not in known],
    }


def _content(item: Item) -> str:
    """Return an item without its id, numbers as :func:`items_of` rounds them."""
    plain = {name: value for name, value in item.items() if name != "id"}
    for name in ("at", "outline", "region"):
        if name in plain:
            plain[name] = np.round(np.array(plain[name], float), 2).tolist()
    return repr(sorted(plain.items()))
