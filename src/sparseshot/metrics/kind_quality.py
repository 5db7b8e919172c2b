"""What held-out marks say about kinds: how many of each are recognised, and how many there are.

Marks of a kind tell how many of its cells are called so. They say nothing about cells of no marked kind, of
which any number may be called so too. Only cells that are certainly of none tell that: marks of Other, of
negative classes, and unmarked cells in exhaustive regions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from sparseshot.metrics.quality import Expected, expected, independent

PLACE_UM = 100.0
"""Marks in one square of this side are held out together, because neighbours are alike."""

FEWEST = 5
"""Marks of a kind below which nothing is said about it."""

_LIKENESS = 0.1
"""Correlation of being recognised among marks of one place."""

_DRAWS, _DRAWS_OF_SHARES = 4000, 400


@dataclass(frozen=True, eq=False)
class KindEvidence:
    """Kinds of marked cells, and those that a head gave them that had not learned from them.

    Attributes:
        kinds: their names; the first is of cells that are certainly of none.
        counts: ``(K, K)`` marks by kind (rows) and by the kind they were given (columns).
        alike: ``(K,)`` sum of the squares of the numbers of marks of a kind in each place.
    """

    kinds: tuple[str, ...]
    counts: NDArray[np.int64]
    alike: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        kinds: tuple[str, ...],
        truth: NDArray[np.integer],
        given: NDArray[np.integer],
        place: NDArray[np.integer],
    ) -> Self:
        """Count held-out marks by their kind, the kind they were given, and their place."""
        counts = np.zeros((len(kinds), len(kinds)), np.int64)
        np.add.at(counts, (truth, given), 1)
        numbers = [np.unique(place[truth == k], return_counts=True)[1] for k in range(len(kinds))]
        return cls(kinds, counts, np.array([int((each**2).sum()) for each in numbers]))

    def as_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {"counts": self.counts.tolist(), "alike": self.alike.tolist()}

    @classmethod
    def from_json(cls, kinds: tuple[str, ...], content: Mapping[str, Any]) -> Self:
        """Read evidence; a ValueError if it is of another size."""
        counts, alike = (np.array(content[name], np.int64) for name in ("counts", "alike"))
        if counts.shape != (len(kinds), len(kinds)) or alike.shape != (len(kinds),):
            raise ValueError("evidence of another size")
        return cls(kinds, counts, alike)

    @property
    def marks(self) -> dict[str, int]:
        """Number of held-out marks of each kind."""
        return dict(zip(self.kinds, self.counts.sum(axis=1).tolist(), strict=True))

    @property
    def _scale(self) -> list[float]:
        """Share of the marks of each kind that counts as independent."""
        marks = self.counts.sum(axis=1)
        pairs = zip(marks.tolist(), self.alike.tolist(), strict=True)
        return [independent(count, alike, _LIKENESS) for count, alike in pairs]

    def recall(self) -> dict[str, Expected]:
        """Return the share of the found cells of each kind that is called so, where marks can tell.

        >>> evidence = KindEvidence(("Other", "a"), np.array([[0, 0], [10, 30]]), np.array([0, 40]))
        >>> {name: share.shown() for name, share in evidence.recall().items()}
        {'a': '75 % (63–85 %)'}
        """
        random, shares = np.random.default_rng(0), {}
        for k, scale in enumerate(self._scale):
            marks, right = int(self.counts[k].sum()), int(self.counts[k, k])
            if marks >= FEWEST:
                draws = random.beta(scale * right + 0.5, scale * (marks - right) + 0.5, _DRAWS)
                shares[self.kinds[k]] = expected(draws)
        return shares

    def shares(self, found: Mapping[str, int]) -> dict[str, Expected]:
        """Return the true share of each kind among found cells, from how many were called so.

        The numbers found follow from the true ones, and from how often a kind is taken for another. This is
        solved for the true ones. Empty where marks of any kind, or of none, are too few.

        Args:
            found: number of cells called each kind.

        >>> evidence = KindEvidence(("Other", "a"), np.array([[90, 10], [20, 80]]), np.array([100, 100]))
        >>> {name: round(share.value, 1) for name, share in evidence.shares({"Other": 620, "a": 380}).items()}
        {'Other': 0.6, 'a': 0.4}
        """
        numbers = np.array([found.get(name, 0) for name in self.kinds], float)
        if self.counts.sum(axis=1).min() < FEWEST or not numbers.sum():
            return {}
        random, prior = np.random.default_rng(0), 0.5 / len(self.kinds)
        rows = [
            random.dirichlet(scale * row + prior, _DRAWS_OF_SHARES)
            for scale, row in zip(self._scale, self.counts, strict=True)
        ]
        solved = np.array([nnls(np.array(each).T, numbers)[0] for each in zip(*rows, strict=True)])
        solved /= solved.sum(axis=1, keepdims=True)
        return {name: expected(column) for name, column in zip(self.kinds, solved.T, strict=True)}

    def sentence(self) -> str:
        """Return in words how many of the cells of each kind are recognised; empty where nothing is known."""
        known = self.recall()
        listed = ", ".join(f"{name} {known[name].shown()} from {self.marks[name]} marks" for name in known)
        text = f"of the found cells of each kind are recognised about: {listed}"
        if not known or self.kinds[0] in known:
            return text if known else ""
        return f"{text}; how many other cells are taken for them, only marks of {self.kinds[0]} tell"
