"""Linear head that tells the kinds of found cells, from their features and those of the cells around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from sparseshot.cells import Cells
from sparseshot.cells.buckets import Buckets
from sparseshot.cells.table import GREY
from sparseshot.compiled import compiled
from sparseshot.metrics.kind_quality import KindEvidence

OTHER = "Other"
"""Class of found cells of no marked kind."""

PROBABILITY, GUESS = "Probability", "Starter probability"
"""Measurements of the probabilities of kinds: of those that were marked, and of the starter's own."""

_AT_ONCE = 1 << 16
"""Cells whose logits are computed at a time."""


SURROUNDINGS_UM = 30.0
"""Cells this near to a cell are its surroundings."""


def mean_around(
    values: NDArray[np.floating], um: NDArray[np.float64], counted: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """Return the mean of values ``(N, K)`` over the cells around each cell, itself included.

    Args:
        values: of all cells.
        um: ``(N, 2)`` their places in µm.
        counted: ``(N,)`` which cells count for others; None: all.

    >>> mean_around(np.array([[1.0], [3.0], [7.0]]), np.array([[0.0, 0.0], [20.0, 0.0], [90.0, 0.0]])).ravel()
    array([2., 2., 7.], dtype=float32)
    """
    return _means(values, um, np.ones(len(um), np.bool_), counted)


def with_surroundings(
    features: NDArray[np.floating], um: NDArray[np.float64], rows: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return the features of some cells beside the mean of those around them, ``(len(rows), 2 F)``.

    Args:
        features: ``(N, F)`` of all cells.
        um: ``(N, 2)`` their places in µm.
        rows: which to return.
    """
    wanted = np.zeros(len(um), np.bool_)
    wanted[rows] = True
    means = _means(features, um, wanted)
    return np.concatenate([features[rows].astype(np.float32), means[np.cumsum(wanted)[rows] - 1]], axis=1)


def near_rows(um: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of all cells that may be around some cells, a few more among them.

    >>> near_rows(np.array([[0.0, 0.0], [20.0, 0.0], [90.0, 0.0], [500.0, 0.0]]), np.array([0])).tolist()
    [0, 1]
    """
    grid = Buckets.over(um, side=SURROUNDINGS_UM)
    keys, step = grid.keys(um), np.array([-1, 0, 1])
    around = (step[:, None] * grid.stride + step).ravel()
    return np.flatnonzero(np.isin(keys, np.unique(keys[rows])[:, None] + around))


def side_by_side(places: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return places in µm of several images, moved so far apart that they are not around each other."""
    moved, right = [np.empty((0, 2))], 0.0
    for um in places:
        if len(um):
            moved.append(um + np.array([right - um[:, 0].min(), 0.0]))
            right = float(moved[-1][:, 0].max()) + 2 * SURROUNDINGS_UM
    return np.concatenate(moved)


def _means(
    values: NDArray[np.floating],
    um: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    counted: NDArray[np.bool_] | None = None,
) -> NDArray[np.float32]:
    """Return the mean around each wanted cell, in their order."""
    grid = Buckets.over(um, side=SURROUNDINGS_UM)
    order, keys = grid.sort(um)
    place = np.cumsum(wanted) - 1
    out = np.empty((int(wanted.sum()), values.shape[1]), np.float32)
    # float16 is not known to compiled code, and would take as long to convert there.
    near = np.ascontiguousarray(values, np.float32)
    counts = np.ones(len(um), np.bool_) if counted is None else counted[order]
    _fill_means(out, np.where(wanted, place, -1)[order], counts, near, um[order], order, keys, grid.stride)
    return out


@compiled
def _fill_means(  # noqa: PLR0917  compiled functions know no keyword-only arguments
    out: Any, place: Any, counts: Any, values: Any, um: Any, order: Any, keys: Any, stride: int
) -> None:
    """Sum over three ranges of buckets, which only move forwards."""
    count, size = len(um), values.shape[1]
    start, stop = np.zeros(3, np.int64), np.zeros(3, np.int64)
    total = np.empty(size)
    for i in range(count):
        for row in range(3):
            key = keys[i] + (row - 1) * stride
            while start[row] < count and keys[start[row]] < key - 1:
                start[row] += 1
            while stop[row] < count and keys[stop[row]] <= key + 1:
                stop[row] += 1
        if place[i] < 0:
            continue
        total[:], cells = 0.0, 0
        for row in range(3):
            for j in range(start[row], stop[row]):
                dx, dy = um[j, 0] - um[i, 0], um[j, 1] - um[i, 1]
                if (counts[j] or i == j) and dx * dx + dy * dy <= SURROUNDINGS_UM * SURROUNDINGS_UM:
                    cells += 1
                    for k in range(size):
                        total[k] += values[order[j], k]
        for k in range(size):
            out[place[i], k] = total[k] / cells


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
        if weight.ndim != 2 or len(names) != len(weight) or bias.shape != (len(names),):
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
            own += mean_around(self._times(features, self.weight[:, size:]), um, counted)
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
