"""A simulated annotator: spends clicks on slides of which every cell is known, by a policy.

A mark is a click, and so is the removal of a prediction. Declaring a region done is one click. Accepting a
prediction in a reviewed region costs nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.active.review import add_review, is_rejected, review_region
from sparseshot.active.scout import RegionScout
from sparseshot.active.suggestions import NothingLeftError, suggest_regions
from sparseshot.cells import Cells
from sparseshot.errors import InputError, unknown_name
from sparseshot.images import Box, TileGrid
from sparseshot.metrics import match_cells
from sparseshot.models.detect import MATCH_RADIUS_UM
from sparseshot.models.labelling import REJECTED
from sparseshot.prediction.model import Model
from sparseshot.training.annotated import AnnotatedSlide

REGION_UM = 64.0
"""Side of the regions that are marked or reviewed as a whole."""

_FEWEST_REGIONS = 8
_CANDIDATES = 120

_Mark = tuple[int, str, NDArray[np.float64]]
"""Index of the slide, class, and place."""


@dataclass(frozen=True)
class Annotation:
    """What an annotator has marked so far.

    Attributes:
        slides: with their marks, and every cell as truth.
        clicks: spent on these marks.
    """

    slides: tuple[AnnotatedSlide, ...]
    clicks: int = 0

    @property
    def marks(self) -> int:
        """Number of cells that are marked, accepted predictions included."""
        return sum(int((~is_rejected(item.marks)).sum()) for item in self.slides)


class Opportunity(NamedTuple):
    """Input of a policy.

    Attributes:
        model: trained on the marks so far.
        clicks: number to spend; the last region is always finished.
        random: generator for all choices.
        side_um: side of a region.
    """

    model: Model
    clicks: int
    random: np.random.Generator
    side_um: float = REGION_UM


def first_marks(slides: Sequence[AnnotatedSlide], clicks: int, *, seed: int) -> Annotation:
    """Return slides with marks on some cells chosen at random, and no others.

    Args:
        slides: of which every cell is marked, or known as truth.
        clicks: number of marks.
        seed: of the choice.
    """
    bare = []
    for item in slides:
        truth = Cells(item.cells.xy, mpp=item.slide.mpp)
        bare.append(replace(item, marks=truth[:0], truth=truth))
    return _mark_at_random(Annotation(tuple(bare)), clicks, np.random.default_rng(seed))


def spend(annotation: Annotation, policy: str, given: Opportunity) -> Annotation:
    """Return the annotation after more clicks, spent by a policy of :data:`POLICIES`."""
    if policy not in POLICIES:
        raise InputError(unknown_name("policy", policy, POLICIES))
    return POLICIES[policy](annotation, given)


def _random(annotation: Annotation, given: Opportunity) -> Annotation:
    """Mark cells at random."""
    return _mark_at_random(annotation, given.clicks, given.random)


def _errors(annotation: Annotation, given: Opportunity) -> Annotation:
    """Mark errors at random: a missed cell as a cell, a false one as rejected."""
    errors: list[_Mark] = []
    for index, item in enumerate(annotation.slides):
        scout = RegionScout(given.model, item.slide, given.side_um)
        missed, false, _ = _judged(item, scout.look(scout.frame.grid.box).found)
        errors += [(index, "cell", xy) for xy in missed.xy]
        errors += [(index, REJECTED, xy) for xy in false.xy]
    marked = _mark_some(annotation, errors, given.clicks, given.random)
    return _mark_at_random(marked, annotation.clicks + given.clicks - marked.clicks, given.random)


def _regions(annotation: Annotation, given: Opportunity) -> Annotation:
    """Mark every cell of squares chosen at random."""
    squares = [
        (index, shapely.box(*scout.frame.grid.to_level0(tile.core)))
        for index, item in enumerate(annotation.slides)
        for scout in [RegionScout(given.model, item.slide, given.side_um)]
        for tile in TileGrid(scout.frame.grid.width, scout.frame.grid.height, scout.side_px)
    ]
    order = (squares[k] for k in given.random.permutation(len(squares)))
    return _finish_regions(annotation, order, given, propose=lambda *_: None)


def _review(annotation: Annotation, given: Opportunity) -> Annotation:
    """Correct the predictions in the regions that are suggested."""
    names = {item.slide.name: index for index, item in enumerate(annotation.slides)}
    scouts = [RegionScout(given.model, item.slide, given.side_um) for item in annotation.slides]

    def propose(index: int, region: shapely.Polygon) -> Cells:
        corners = scouts[index].frame.grid.from_level0(region.bounds)
        return scouts[index].look(Box(*np.rint(corners).astype(int).tolist())).found

    goal = annotation.clicks + given.clicks
    while annotation.clicks < goal:
        try:
            suggested = suggest_regions(
                given.model,
                [item.slide for item in annotation.slides],
                regions=max(_FEWEST_REGIONS, given.clicks // 2),
                learned=annotation.slides,
                side_um=given.side_um,
                candidates=max(_CANDIDATES, given.clicks // 2),
                seed=int(given.random.integers(2**31)),
            )
        except NothingLeftError:
            break
        order = ((names[each.slide], each.region) for each in suggested)
        rest = given._replace(clicks=goal - annotation.clicks)
        annotation = _finish_regions(annotation, order, rest, propose=propose)
    return annotation


def _finish_regions(
    annotation: Annotation,
    regions: Iterable[tuple[int, shapely.Polygon]],
    given: Opportunity,
    *,
    propose: Callable[[int, shapely.Polygon], Cells | None],
) -> Annotation:
    """Declare regions done, one after the other, until the clicks are spent."""
    slides, spent = list(annotation.slides), 0
    for index, region in regions:
        if spent >= given.clicks:
            break
        item = slides[index]
        if shapely.union_all(item.marks.regions).intersection(region).area > 0.5 * region.area:
            continue
        found = propose(index, region)
        if found is None:
            found = Cells(np.empty((0, 2)), score=np.empty(0), mpp=item.slide.mpp)
        missed, false, is_false = _judged(item, found)
        missed = missed[shapely.contains_xy(region, missed.xy)]
        reviewed = review_region(region, found, removed=is_false, added=missed)
        slides[index] = replace(item, marks=add_review(item.marks, reviewed))
        spent += len(missed) + len(false) + 1
    return Annotation(tuple(slides), annotation.clicks + spent)


def _judged(item: AnnotatedSlide, found: Cells) -> tuple[Cells, Cells, NDArray[np.bool_]]:
    """Return the cells that are neither found nor marked, what is wrongly found, and a mask of that.

    What was rejected before and is found again counts as an error that a person has already corrected.
    """
    truth = item.cells
    found = replace(found, mpp=truth.mpp)
    is_false = np.ones(len(found), np.bool_)
    matching = match_cells(truth, found, radius_um=MATCH_RADIUS_UM)
    is_false[matching.found] = False
    is_missed = np.ones(len(truth), np.bool_)
    is_missed[matching.truth] = False
    is_missed &= ~_is_marked(item)
    known = item.marks[is_rejected(item.marks)]
    fresh = is_false.copy()
    if len(known) and is_false.any():
        again = match_cells(known, found[is_false], radius_um=MATCH_RADIUS_UM).found
        fresh[np.flatnonzero(is_false)[again]] = False
    return truth[is_missed], found[fresh], is_false


def _mark_at_random(annotation: Annotation, clicks: int, random: np.random.Generator) -> Annotation:
    free = [
        (index, "cell", xy)
        for index, item in enumerate(annotation.slides)
        for xy in item.cells.xy[~_is_marked(item)]
    ]
    return _mark_some(annotation, free, clicks, random)


def _mark_some(
    annotation: Annotation, places: Sequence[_Mark], clicks: int, random: np.random.Generator
) -> Annotation:
    """Mark some of the places, chosen at random."""
    chosen = [places[k] for k in random.permutation(len(places))[:clicks]]
    slides = list(annotation.slides)
    for name in ("cell", REJECTED):
        for index in {index for index, kind, _ in chosen if kind == name}:
            xy = [place for own, kind, place in chosen if own == index and kind == name]
            marks = slides[index].marks
            fresh = Cells(xy, classes=(name,), mpp=marks.mpp)
            slides[index] = replace(slides[index], marks=Cells.concatenate([marks, fresh]))
    return Annotation(tuple(slides), annotation.clicks + len(chosen))


def _is_marked(item: AnnotatedSlide) -> NDArray[np.bool_]:
    """Return which of the true cells are marked."""
    marked = np.zeros(len(item.cells), np.bool_)
    marks = item.marks[~is_rejected(item.marks)]
    if len(marks):
        marked[match_cells(item.cells, marks, radius_um=MATCH_RADIUS_UM).truth] = True
    return marked


Policy = Callable[[Annotation, Opportunity], Annotation]
POLICIES: Mapping[str, Policy] = MappingProxyType(
    {"random": _random, "errors": _errors, "regions": _regions, "review": _review}
)
"""Ways to spend clicks, by name."""
