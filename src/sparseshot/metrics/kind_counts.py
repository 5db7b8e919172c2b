"""Scores of kinds: precision, recall and F1 of each, and which are taken for which."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.metrics.counts import Counts, Interval, bootstrap_interval, f1_score
from sparseshot.metrics.matching import match_cells

NOTHING = "nothing"
"""Row of found cells where there is none, and column of cells that are not found."""


@dataclass(frozen=True, eq=False)
class KindCounts:
    """Counts of kinds on one image; images add up.

    Attributes:
        kinds: their names.
        counts: ``(kinds, 3)`` true positives, false positives and misses of each kind, matched by kind.
        confusion: ``(kinds + 2, kinds + 2)`` pairs of true and found kinds, matched whatever their kind;
            after the kinds, all others and :data:`NOTHING`.
    """

    kinds: tuple[str, ...]
    counts: NDArray[np.int64]
    confusion: NDArray[np.int64]

    @classmethod
    def of(cls, truth: Cells, found: Cells, kinds: tuple[str, ...], *, radius_um: float = 3.0) -> Self:
        """Count the kinds of an image; cells of other classes are others.

        >>> truth = Cells([[0, 0], [40, 0]], classes=("a", "b"), label=[0, 1], mpp=0.5)
        >>> found = Cells([[1, 0], [41, 0], [90, 0]], classes=("a", "b"), label=[0, 0, 1], mpp=0.5)
        >>> counted = KindCounts.of(truth, found, ("a", "b"))
        >>> counted.counts.tolist()
        [[1, 1, 0], [0, 1, 1]]
        >>> counted.confusion.tolist()
        [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
        """
        truth, found = truth.with_classes(kinds), found.with_classes(kinds)
        counts = np.zeros((len(kinds), 3), np.int64)
        for k in range(len(kinds)):
            own = match_cells(truth[truth.label == k], found[found.label == k], radius_um=radius_um).counts
            counts[k] = own.tp, own.fp, own.fn
        size = len(kinds) + 2
        matching = match_cells(truth, found, radius_um=radius_um)
        rows, columns = np.full(len(found), size - 1), np.full(len(truth), size - 1)
        of_truth, of_found = (np.where(each.label < 0, size - 2, each.label) for each in (truth, found))
        rows[matching.found], columns[matching.truth] = of_truth[matching.truth], of_found[matching.found]
        confusion = np.zeros((size, size), np.int64)
        np.add.at(confusion, (rows, of_found), 1)
        missed = np.setdiff1d(np.arange(len(truth)), matching.truth)
        np.add.at(confusion, (of_truth[missed], columns[missed]), 1)
        return cls(kinds, counts, confusion)


@dataclass(frozen=True)
class KindScores:
    """Scores of kinds over images.

    Attributes:
        kinds: their names.
        precision: of each kind.
        recall: of each kind.
        f1: of each kind, all images together.
        intervals: 95 % bootstrap intervals of F1 over images; nan with one image.
        mean_f1: mean over the kinds.
        mean_interval: its interval.
        confusion: see :class:`KindCounts`, as lists.
    """

    kinds: tuple[str, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    mean_f1: float
    mean_interval: tuple[float, float]
    confusion: tuple[tuple[int, ...], ...]


def kind_scores(images: list[KindCounts]) -> KindScores:
    """Return the scores of kinds over images."""
    kinds = images[0].kinds
    every = np.stack([image.counts for image in images])  # (images, kinds, 3)
    pooled = [Counts(*map(int, row)) for row in every.sum(axis=0)]

    def mean_f1(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        counts = rows.reshape(len(rows), len(kinds), 3)
        return np.asarray(f1_score(*np.moveaxis(counts, -1, 0)).mean(axis=1))

    nan = float("nan")
    intervals, mean_interval = [Interval(nan, nan)] * len(kinds), Interval(nan, nan)
    if len(images) > 1:
        intervals = [bootstrap_interval(own, lambda rows: f1_score(*rows.T)) for own in every.swapaxes(0, 1)]
        mean_interval = bootstrap_interval(every.reshape(len(every), -1), mean_f1)
    confusion = np.sum([image.confusion for image in images], axis=0)
    return KindScores(
        kinds,
        tuple(each.precision for each in pooled),
        tuple(each.recall for each in pooled),
        tuple(each.f1 for each in pooled),
        tuple((low, high) for low, high in intervals),
        float(np.mean([each.f1 for each in pooled])),
        (mean_interval.low, mean_interval.high),
        tuple(tuple(row) for row in confusion.tolist()),
    )
