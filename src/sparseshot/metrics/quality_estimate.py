r"""Expected recall, precision and F1 of a model, from sparse held-out marks alone.

Recall is the share of the held-out marks that are found. Precision needs more: of what is found, only a share
is marked, that of the marked cells times precision. A model that ranks well is right where it is most
confident, so the marked share of what it finds rises with the score x to the share c of cells that is marked,

.. math:: P(\text{marked} \mid x) = c \, \sigma(a (x - m))

where x is the logit of the score. The posterior of a, m and c over a grid, from what scores near the
threshold and above, gives precision as the mean of σ(a (x − m)).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseshot.metrics.intervals import Interval
from sparseshot.metrics.score_histogram import BINS, BINS_PER_LOGIT, HIGHEST_LOGIT, THRESHOLDS, ScoreHistogram

LEVEL = 0.9
FEW_CERTAIN = 20
"""Number of predictions in exhaustive regions from which on precision is counted there."""

WIDE_THRESHOLD = 0.5
"""Width of the interval of a threshold above which it is uninformative."""

_BIN_LOGITS = 0.25
_BELOW_LOGITS = 1.0
"""How far below the threshold scores count; of 0, 1, 2, 3 and all, 1 had the best coverage in simulation."""

_SLOPES = np.geomspace(0.5, 6.0, 12)
_SHARES = np.geomspace(0.002, 1.0, 50)
_MIDDLES = 48
_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of a model where marks are known.

    Attributes:
        of_marks: scores at the marks, 0 where nothing was found; of their pixels in segmentation.
        of_all: scores of everything found in the same places.
        marks: number of independent marks.
        places: locations that were looked at.
        certain_marks: as ``of_marks``, inside exhaustive regions.
        certain_all: as ``of_all``, inside exhaustive regions.
        held_out: the model has not learned from these marks.
        interval: 90 % interval of the calibrated threshold.
        marked_share: share of the cells that is marked, as the loss estimates it; None if it does not.
    """

    of_marks: ScoreHistogram = field(default_factory=ScoreHistogram)
    of_all: ScoreHistogram = field(default_factory=ScoreHistogram)
    marks: int = 0
    places: int = 0
    certain_marks: ScoreHistogram = field(default_factory=ScoreHistogram)
    certain_all: ScoreHistogram = field(default_factory=ScoreHistogram)
    held_out: bool = True
    interval: Interval = field(default_factory=lambda: Interval(0.0, 1.0))
    marked_share: float | None = None

    def __add__(self, other: "Evidence") -> "Evidence":
        """Add the evidence of two places; interval and marked share are those of the first."""
        return Evidence(
            self.of_marks + other.of_marks,
            self.of_all + other.of_all,
            self.marks + other.marks,
            self.places + other.places,
            self.certain_marks + other.certain_marks,
            self.certain_all + other.certain_all,
            self.held_out and other.held_out,
            self.interval,
            self.marked_share,
        )

    @property
    def is_uncertain(self) -> bool:
        """Whether the marks are too few to determine the threshold."""
        return self.interval.high - self.interval.low > WIDE_THRESHOLD


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
        precision: share of what is found that are cells.
        f1: harmonic mean of both.
        cells_per_found: number of cells for each that is found.
        marks: number of marks it rests on.
        held_out: the model has not learned from them.
        certain: number of predictions in exhaustive regions in which precision was counted; 0 if it was
            estimated from sparse marks.
        threshold: the threshold.
    """

    recall: Expected
    precision: Expected
    f1: Expected
    cells_per_found: Expected
    marks: int
    held_out: bool
    certain: int
    threshold: float

    def cells(self, found: int) -> tuple[int, int, int]:
        """Return the expected number of cells on a slide where some were found, and its 90 % interval."""
        value, low, high = (round(found * each) for each in self.cells_per_found)
        return value, low, high

    def sentence(self) -> str:
        """Return the expected quality, and the evidence for it, in words."""
        text = (
            f"about {self.recall.shown()} of the cells are found, and {self.precision.shown()} of what is "
            f"found are cells; expected F1 {self.f1.value:.2f} ({self.f1.low:.2f}–{self.f1.high:.2f}); from "
        )
        marks = "1 mark" if self.marks == 1 else f"{self.marks:,} marks"
        text += marks.replace("mark", "held-out mark") if self.held_out else f"{marks} that were learned from"
        if self.certain:
            text += f", and {self.certain:,} predictions in exhaustive regions"
        return text if self.held_out else f"{text}, so it may be worse"


def expected_quality(evidence: Evidence, threshold: float) -> ExpectedQuality | None:
    """Return the expected quality at a threshold; None without marks or where none of them is found.

    Args:
        evidence: scores at held-out marks.
        threshold: of the predictions.

    >>> random = np.random.default_rng(0)
    >>> cells, others = random.normal(1, 1.2, 2000), random.normal(-3, 1.5, 8000)
    >>> everything = ScoreHistogram.of_logits(np.concatenate([cells, others]))
    >>> evidence = Evidence(ScoreHistogram.of_logits(cells[:200]), everything, 200)
    >>> quality = expected_quality(evidence, 0.5)
    >>> round(float((cells > 0).mean()), 2), quality.recall.shown()
    (0.79, '82 % (77–86 %)')
    >>> bool(quality.precision.low < (cells > 0).sum() / ((cells > 0).sum() + (others > 0).sum()))
    True
    """
    first = int(np.searchsorted(THRESHOLDS, threshold - 1e-12))
    total = evidence.of_marks.total
    if not evidence.marks or not evidence.of_marks.counts[max(first, 1) :].any():
        return None
    scale = evidence.marks / total  # pixels of one mark count together as one
    random = np.random.default_rng(0)
    hits = evidence.of_marks.counts[first:].sum() * scale
    recall = random.beta(hits + 0.5, evidence.marks - hits + 0.5, _DRAWS)
    right = evidence.certain_marks.counts[first:].sum() * scale
    certain = evidence.certain_all.counts[first:].sum() * scale
    if certain >= FEW_CERTAIN:
        precision = random.beta(right + 0.5, max(certain - right, 0) + 0.5, _DRAWS)
    else:
        certain = 0
        values, weights = _precisions(evidence, first, scale)
        precision = random.choice(values, _DRAWS, p=weights)
    f1 = 2 * precision * recall / (precision + recall)
    return ExpectedQuality(
        recall=_expected(recall),
        precision=_expected(precision),
        f1=_expected(f1),
        cells_per_found=_expected(precision / recall),
        marks=evidence.marks,
        held_out=evidence.held_out,
        certain=round(certain),
        threshold=threshold,
    )


def _expected(draws: NDArray[np.float64]) -> Expected:
    low, middle, high = np.quantile(draws, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return Expected(float(middle), float(low), float(high))


def _precisions(
    evidence: Evidence, first: int, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the precision above a bin for each point of the grid of a, m and c, and its posterior."""
    joined = round(_BIN_LOGITS * BINS_PER_LOGIT)
    # Far below the threshold the curve has another shape, because some cells look like background.
    starts = np.arange(max(first - round(_BELOW_LOGITS * BINS_PER_LOGIT), 1), BINS, joined)
    marked, every = (
        np.add.reduceat(histogram.counts, starts) * scale
        for histogram in (evidence.of_marks, evidence.of_all)
    )
    found = np.add.reduceat(np.where(np.arange(BINS) < first, 0, evidence.of_all.counts), starts)
    used = np.maximum(every, marked) > 0
    x = (starts[used] + joined / 2) / BINS_PER_LOGIT - HIGHEST_LOGIT
    marked, every = marked[used], np.maximum(every, marked)[used]
    middles = np.linspace(x[0] - 4, x[-1] + 1, _MIDDLES)
    # Over (slope, middle, bin), and then with a share in place of bins.
    p = 1 / (1 + np.exp(-_SLOPES[:, None, None] * (x - middles[:, None])))
    likelihood = np.empty((len(_SLOPES), _MIDDLES, len(_SHARES)))
    for k, share in enumerate(_SHARES):
        q = np.clip(share * p, 1e-12, 1 - 1e-12)
        likelihood[:, :, k] = (marked * np.log(q) + (every - marked) * np.log1p(-q)).sum(axis=2)
    by_curve = np.exp(likelihood - likelihood.max()).sum(axis=2)
    weights = found[used] / max(found.sum(), 1)
    return (p * weights).sum(axis=2).ravel(), (by_curve / by_curve.sum()).ravel()
