"""Expected recall, precision and F1 of a model, from held-out marks.

Recall is the share of the held-out marks that are found. A point is found within 3 µm, and in crowded tissue
that may be the detection of a neighbour, which sparse marks cannot show. So a detection farther than 2 µm
counts for its mark with an unknown share φ between 0 and 1. An outline with an IoU of one half cannot be that
of a neighbour.

Precision needs every cell of some places. It is counted in exhaustive regions, by one-to-one matching, and is
unknown without them: how many of the unmarked predictions are cells does not follow from positive marks.

Marks of one place are alike, and cells of one region even more so. Their number is reduced to that of
independent marks, n / (1 + r (m − 1)), where m is the mean number of other marks at the place of a mark.
"""

from dataclasses import dataclass, field, fields
from typing import NamedTuple, Self

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.cells.near import is_inside
from sparseshot.errors import counted
from sparseshot.metrics.counts import Interval
from sparseshot.metrics.curves import mark_scores, scored_hits
from sparseshot.metrics.overlaps import overlaps_of_outlines
from sparseshot.metrics.threshold import THRESHOLDS, ScoreHistogram

LEVEL = 0.9
FEW_CERTAIN = 20
"""Number of predictions in exhaustive regions from which on precision is counted there."""

WIDE_THRESHOLD = 0.5
"""Width of the interval of a threshold above which it is uninformative."""

FOUND_UM, OWN_UM = 3.0, 2.0
"""Distances within which a point counts as found, and within which no neighbour was found instead."""

SAME_THRESHOLD = 0.01
"""Difference of thresholds at which outlines are still about the same."""

_LIKENESS_OF_MARKS, _LIKENESS_OF_CELLS = 0.06, 0.13
"""Correlation of being found among marks scattered over a place, and among all cells of a region."""

_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of a model where marks are known.

    Attributes:
        of_marks: scores at the marks, 0 where nothing was found; of their pixels in segmentation.
        of_all: scores of everything found in the same places.
        marks: number of independent marks.
        places: locations that were looked at.
        hits: highest score of what was found for each mark outside of exhaustive regions, 0 for nothing.
        own_hits: the same, of what no neighbour was found by.
        alike: sum of the squares of the numbers of these marks in each place.
        region_hits: scores of what was found in exhaustive regions and has a cell of its own.
        region_found: scores of everything found there.
        region_cells: number of cells there.
        region_alike: sum of the squares of the numbers of these cells in each place.
        only_at: the only threshold at which hits are known; None: at all.
        held_out: the model has not learned from these marks.
        interval: 90 % interval of the calibrated threshold.
        marked_share: share of the cells that is marked, as the loss estimates it; None if it does not.
    """

    of_marks: ScoreHistogram = field(default_factory=ScoreHistogram)
    of_all: ScoreHistogram = field(default_factory=ScoreHistogram)
    marks: int = 0
    places: int = 0
    hits: ScoreHistogram = field(default_factory=ScoreHistogram)
    own_hits: ScoreHistogram = field(default_factory=ScoreHistogram)
    alike: int = 0
    region_hits: ScoreHistogram = field(default_factory=ScoreHistogram)
    region_found: ScoreHistogram = field(default_factory=ScoreHistogram)
    region_cells: int = 0
    region_alike: int = 0
    only_at: float | None = None
    held_out: bool = True
    interval: Interval = field(default_factory=lambda: Interval(0.0, 1.0))
    marked_share: float | None = None

    @classmethod
    def of_cells(cls, found: Cells, marks: Cells, regions: NDArray[np.object_]) -> Self:
        """Compare what was found in one place with its marks.

        Args:
            found: the cells, with scores.
            marks: the positive marks, in the same level-0 pixels.
            regions: polygons in which every cell is marked.
        """
        assert found.score is not None
        is_region, is_marked = is_inside(found.xy, regions), is_inside(marks.xy, regions)
        in_region, of_region = found[is_region], marks[is_marked]
        hits, own = _scores(found, marks[~is_marked])
        return cls(
            hits=ScoreHistogram.of(hits),
            own_hits=ScoreHistogram.of(own),
            alike=len(hits) ** 2,
            region_hits=ScoreHistogram.of(_paired_scores(in_region, of_region)),
            region_found=ScoreHistogram.of(found.score[is_region]),
            region_cells=len(of_region),
            region_alike=len(of_region) ** 2,
        )

    def __add__(self, other: "Evidence") -> "Evidence":
        """Add the evidence of two places; interval, marked share and threshold are those of the first."""
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in {"only_at", "held_out", "interval", "marked_share"}
        }
        return Evidence(
            **sums,
            only_at=self.only_at,
            held_out=self.held_out and other.held_out,
            interval=self.interval,
            marked_share=self.marked_share,
        )

    @property
    def is_uncertain(self) -> bool:
        """Whether the marks are too few to determine the threshold."""
        return self.interval.high - self.interval.low > WIDE_THRESHOLD


def _has_outlines(found: Cells, marks: Cells) -> bool:
    return all(
        each.outline is not None and not shapely.is_missing(each.outline).any() for each in (found, marks)
    )


def _scores(found: Cells, marks: Cells) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the score of what was found for each mark, 0 for nothing; and of what is certainly its own."""
    assert found.score is not None
    if _has_outlines(found, marks):
        scores = np.zeros(len(marks))
        matching = overlaps_of_outlines(marks, found).match(iou=0.5)
        scores[matching.truth] = found.score[matching.found]
        return scores, scores
    scale = found.mpp or marks.mpp or 1.0
    any_near, own = (
        mark_scores(marks.xy, found.xy, found.score, radius=radius / scale) for radius in (FOUND_UM, OWN_UM)
    )
    return any_near, own


def _paired_scores(found: Cells, cells: Cells) -> NDArray[np.floating]:
    """Return the scores of what has a cell of its own, where every cell is known."""
    assert found.score is not None
    if _has_outlines(found, cells):
        return found.score[overlaps_of_outlines(cells, found).match(iou=0.5).found]
    radius = FOUND_UM / (found.mpp or cells.mpp or 1.0)
    hits = scored_hits(cells.xy, found.xy, found.score, radius=radius)
    return hits.score[hits.hit]


class Expected(NamedTuple):
    """An expected value, and both ends of its 90 % interval."""

    value: float
    low: float
    high: float

    def shown(self) -> str:
        """Return the value as a percentage with its interval.

        >>> Expected(0.884, 0.81, 0.93).shown()
        '88 % (81–93 %)'
        """
        return f"{100 * self.value:.0f} % ({100 * self.low:.0f}–{100 * self.high:.0f} %)"


@dataclass(frozen=True)
class ExpectedQuality:
    """Expected quality of a model at a threshold.

    Attributes:
        recall: share of the cells that are found.
        precision: share of what is found that are cells; None without exhaustive regions.
        f1: harmonic mean of both; None without precision.
        cells_per_found: number of cells for each that is found; None without precision.
        marks: number of held-out marks it rests on.
        certain: number of predictions in exhaustive regions in which precision was counted.
        threshold: the threshold.
    """

    recall: Expected
    precision: Expected | None
    f1: Expected | None
    cells_per_found: Expected | None
    marks: int
    certain: int
    threshold: float

    def cells(self, found: int) -> tuple[int, int, int] | None:
        """Return the expected number of cells where some were found, and its interval; None if unknown."""
        if self.cells_per_found is None:
            return None
        value, low, high = (round(found * each) for each in self.cells_per_found)
        return value, low, high

    def sentence(self) -> str:
        """Return the expected quality, and the evidence for it, in words."""
        basis = counted(self.marks, "held-out mark")
        text = f"about {self.recall.shown()} of the cells are found"
        if self.precision is None or self.f1 is None:
            return (
                f"{text}, from {basis}; how much of what is found are cells, only an exhaustive region tells"
            )
        f1 = f"{self.f1.value:.2f} ({self.f1.low:.2f}–{self.f1.high:.2f})"
        return (
            f"{text}, and {self.precision.shown()} of what is found are cells; expected F1 {f1}; from "
            f"{basis}, and {counted(self.certain, 'prediction')} in exhaustive regions"
        )


def expected_quality(evidence: Evidence, threshold: float) -> ExpectedQuality | None:
    """Return the expected quality at a threshold; None where it cannot be known.

    That is without held-out marks, where none of them is found, and at another threshold than
    the one for which outlines were compared.

    >>> random = np.random.default_rng(0)
    >>> scores = ScoreHistogram.of_logits(random.normal(1, 1.2, 200))
    >>> quality = expected_quality(Evidence(hits=scores, own_hits=scores, alike=200), 0.5)
    >>> quality.recall.shown(), quality.precision
    ('82 % (77–86 %)', None)
    """
    is_known = evidence.only_at is None or abs(threshold - evidence.only_at) < SAME_THRESHOLD
    if not is_known or not evidence.held_out:
        return None
    first = max(1, int(np.searchsorted(THRESHOLDS, threshold - 1e-12)))
    found, own, right, certain = (
        int(histogram.counts[first:].sum())
        for histogram in (evidence.hits, evidence.own_hits, evidence.region_hits, evidence.region_found)
    )
    marks, cells = evidence.hits.total, evidence.region_cells
    if not found + right:
        return None
    random = np.random.default_rng(0)
    hits = own + random.beta(0.6, 0.4, _DRAWS) * (found - own)
    scale = independent(marks, evidence.alike, _LIKENESS_OF_MARKS)
    recall = random.beta(scale * hits + 0.5, scale * (marks - hits) + 0.5)
    precision = None
    if cells or certain:
        counts = np.array([right, certain - right, cells - right])
        scale = independent(cells, evidence.region_alike, _LIKENESS_OF_CELLS)
        tp, fp, fn = random.dirichlet(scale * counts + 0.5, _DRAWS).T
        counted = tp / (tp + fn)
        weight = counted.var() / (counted.var() + recall.var()) if marks else 0.0
        recall = weight * recall + (1 - weight) * counted
        precision = tp / (tp + fp) if certain >= FEW_CERTAIN else None
    return ExpectedQuality(
        recall=expected(recall),
        precision=None if precision is None else expected(precision),
        f1=None if precision is None else expected(2 * precision * recall / (precision + recall)),
        cells_per_found=None if precision is None else expected(precision / recall),
        marks=marks + cells,
        certain=certain if precision is not None else 0,
        threshold=threshold,
    )


def independent(count: int, alike: int, likeness: float) -> float:
    """Return the share of some marks that counts as independent."""
    return 1 / (1 + likeness * (alike / count - 1)) if count else 1.0


def expected(draws: NDArray[np.float64]) -> Expected:
    """Return the median of draws, and their 90 % interval."""
    low, middle, high = np.quantile(draws, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return Expected(float(middle), float(low), float(high))
