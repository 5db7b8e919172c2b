"""Linear head that tells the kinds of found cells, from their features and those of the cells around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.special import softmax

from sparseshot.cells import Cells
from sparseshot.cells.table import GREY
from sparseshot.metrics.kind_quality import KindEvidence

OTHER = "Other"
"""Class of found cells of no marked kind."""

PROBABILITY, GUESS = "Probability", "Starter probability"
"""Measurements of the probabilities of kinds: of those that were marked, and of the starter's own."""

_AT_ONCE = 1 << 16
"""Cells whose logits are computed at a time."""

_MOST_PAIRS = 1 << 22
"""Pairs of neighbours that are held in memory at a time."""

SURROUNDINGS_UM = 30.0
"""Cells this near to a cell are its surroundings."""


def mean_around(
    values: NDArray[np.floating],
    um: NDArray[np.float64],
    rows: NDArray[np.intp] | None = None,
    *,
    counted: NDArray[np.bool_] | None = None,
) -> NDArray[np.float32]:
    """Return the mean of values ``(N, K)`` over the cells around each cell, itself included.

    Args:
        values: of all cells.
        um: ``(N, 2)`` their places in µm.
        rows: the cells to return it of; None: all.
        counted: ``(N,)`` which cells count for others; None: all.

    >>> mean_around(np.array([[1.0], [3.0], [7.0]]), np.array([[0.0, 0.0], [20.0, 0.0], [90.0, 0.0]])).ravel()
    array([2., 2., 7.], dtype=float32)
    """
    rows, tree = np.arange(len(um)) if rows is None else rows, cKDTree(um)
    means = [np.empty((0, values.shape[1]), np.float32)]
    # Of cells on top of each other, as another program may give them, all are pairs.
    pairs_before = np.cumsum(tree.query_ball_point(um[rows], SURROUNDINGS_UM, return_length=True))
    for part in np.array_split(rows, np.flatnonzero(np.diff(pairs_before // _MOST_PAIRS)) + 1):
        pairs = cKDTree(um[part]).sparse_distance_matrix(tree, SURROUNDINGS_UM, output_type="ndarray")
        row, other = pairs["i"], pairs["j"]
        counts = np.ones(len(row)) if counted is None else counted[other] | (part[row] == other)
        used, column = np.unique(other, return_inverse=True)
        around = csr_array((counts.astype(np.float64), (row, column)), shape=(len(part), len(used)))
        around.sort_indices()  # so that a sum does not depend on the shape of the tree
        total = around @ values[used].astype(np.float64)
        means.append((total / around.sum(axis=1)[:, None]).astype(np.float32))
    return np.concatenate(means)


def with_surroundings(
    features: NDArray[np.floating], um: NDArray[np.float64], rows: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return the features of some cells beside the mean of those around them, ``(len(rows), 2 F)``.

    Args:
        features: ``(N, F)`` of all cells.
        um: ``(N, 2)`` their places in µm.
        rows: which to return.
    """
    return np.concatenate([features[rows].astype(np.float32), mean_around(features, um, rows)], axis=1)


def near_rows(um: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of all cells that may be around some cells, a few more among them.

    >>> near_rows(np.array([[0.0, 0.0], [20.0, 0.0], [90.0, 0.0], [500.0, 0.0]]), np.array([0])).tolist()
    [0, 1]
    """
    distance, _ = cKDTree(um[rows]).query(um, distance_upper_bound=1.001 * SURROUNDINGS_UM)
    return np.flatnonzero(np.isfinite(distance))


def side_by_side(places: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return places in µm of several images, moved so far apart that they are not around each other."""
    moved, right = [np.empty((0, 2))], 0.0
    for um in places:
        if len(um):
            moved.append(um + np.array([right - um[:, 0].min(), 0.0]))
            right = float(moved[-1][:, 0].max()) + 2 * SURROUNDINGS_UM
    return np.concatenate(moved)


@dataclass(frozen=True, eq=False)
class KindHead:
    """Linear head from the features of a found cell to the probabilities of its kinds.

    Attributes:
        names: of the kinds, in the order of the outputs.
        weight: ``(K, F)`` float32; ``(K, 2 F)`` for a head that looks at the surroundings of a cell too.
        bias: ``(K,)`` float32.
        colors: of the kinds, as ``#rrggbb``; empty for those that the cells have.
        is_guess: nobody marked these kinds. Cells keep their class, and the probabilities are measurements.
        looks_around: the second half of the weights is of the mean features of the cells around.
        evidence: what held-out marks say about the kinds; None if they are too few.
    """

    names: tuple[str, ...]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    colors: tuple[str, ...] = ()
    is_guess: bool = False
    looks_around: bool = False
    evidence: KindEvidence | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the head as JSON holds it."""
        return {
            "names": list(self.names),
            "colors": list(self.colors),
            "weight": self.weight.astype(float).tolist(),
            "bias": self.bias.astype(float).tolist(),
            "looks_around": self.looks_around,
            "evidence": None if self.evidence is None else self.evidence.as_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the head of :meth:`as_json`; a ValueError if it is none."""
        names, colors = tuple(map(str, content["names"])), tuple(map(str, content["colors"]))
        weight, bias = np.array(content["weight"], np.float32), np.array(content["bias"], np.float32)
        sizes = {len(names), len(set(names)), len(weight), bias.size}
        if weight.ndim != 2 or bias.ndim != 1 or len(sizes) > 1:
            raise ValueError("a head of another size")
        held_out = content.get("evidence")
        evidence = None if held_out is None else KindEvidence.from_json(names, held_out)
        looks_around = bool(content.get("looks_around"))
        return cls(names, weight, bias, colors, looks_around=looks_around, evidence=evidence)

    def logits(
        self,
        features: NDArray[np.floating],
        um: NDArray[np.float64] | None = None,
        counted: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float32]:
        """Map features ``(N, F)`` to logits ``(N, K)``.

        Args:
            features: of all cells of a place.
            um: ``(N, 2)`` their places, for a head that looks at surroundings. The head is linear, so the
                mean of its outputs over the cells around is its output of their mean.
            counted: ``(N,)`` which of them are surroundings of others; None: all.
        """
        size = features.shape[1]
        own = self._times(features, self.weight[:, :size])
        if self.looks_around:
            if um is None:
                raise ValueError("this head looks at the surroundings of cells; give their places")
            own += mean_around(self._times(features, self.weight[:, size:]), um, counted=counted)
        return own + self.bias

    @staticmethod
    def _times(features: NDArray[np.floating], weight: NDArray[np.float32]) -> NDArray[np.float32]:
        parts = np.array_split(features, -(-len(features) // _AT_ONCE) or 1)
        return np.concatenate([part.astype(np.float32) @ weight.T for part in parts])

    def assign(self, cells: Cells, features: NDArray[np.floating]) -> Cells:
        """Return all cells of a place with their most probable kinds, and the probabilities as measurements.

        >>> head = KindHead(("Other", "lymphocyte"), np.array([[0], [1]], "f4"), np.zeros(2, "f4"))
        >>> head.assign(Cells([[0, 0], [1, 1]]), np.array([[-2.0], [3.0]])).counts()
        {'Other': 1, 'lymphocyte': 1}
        """
        return self.named(cells, self.logits(features, cells.xy * (cells.mpp or 1.0)))

    def named(self, cells: Cells, logits: NDArray[np.floating]) -> Cells:
        """Return cells with the kinds of their logits ``(N, K)``."""
        p = np.round(softmax(logits, axis=1), 4)
        if self.is_guess:
            guess = {f"{GUESS} {name}": p[:, k] for k, name in enumerate(self.names)}
            return replace(cells, measurements={**cells.measurements, **guess})
        names = {f"{PROBABILITY} {name}": p[:, k] for k, name in enumerate(self.names)}
        kept = {name: column for name, column in cells.measurements.items() if not _is_of_kinds(name)}
        colors: tuple[tuple[int, int, int], ...] | None = None
        if self.colors:
            parts = (bytes.fromhex(color[1:]) for color in self.colors)
            colors = tuple((red, green, blue) for red, green, blue in parts)
        elif cells.colors is not None:
            known = dict(zip(cells.classes, cells.colors, strict=True))
            colors = tuple(known.get(name, GREY) for name in self.names)
        return replace(
            cells,
            classes=self.names,
            label=np.argmax(logits, axis=1).astype(np.int16),
            colors=colors,
            measurements={**kept, PROBABILITY: p.max(axis=1, initial=0), **names},
        )


def _is_of_kinds(measurement: str) -> bool:
    return measurement == PROBABILITY or measurement.startswith((f"{PROBABILITY} ", f"{GUESS} "))
