r"""Kinds of found cells, learned from few marks.

Finding answers *is there a cell?*; this answers *which kind is it?* by a linear head on the features that the
network has at each found cell. It is the paper's loss one level up: an unmarked found cell counts as
"other", except where the model is already confident that it is of a marked kind,

.. math:: L = -\frac{1}{2} \sum_k \frac{1}{C\,|M_k|} \sum_{M_k} \log p_k
              - \frac{1}{2|U|} \sum_{U} \log p_0 + \frac{\lambda}{2} \lVert W \rVert^2,
          \quad U = \{\text{unmarked}, 1 - p_0 < \rho(t)\}

with :math:`p = \mathrm{softmax}(0, z_1, …, z_C)` over other and the kinds, and :math:`M_k` the marks of kind
k. Marked and unmarked cells weigh the same. Cells that are certainly of no marked kind are marks of "other".
"""

import itertools
import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.special import expit, logsumexp, softmax

from sparseshot.cells import Cells
from sparseshot.cells.table import GREY, PALETTE
from sparseshot.errors import InputError, TrainingWarning, counted
from sparseshot.losses.schedules import Sigmoid
from sparseshot.metrics import calibrate_threshold
from sparseshot.metrics.matching import Candidates
from sparseshot.models.labelling import REJECTED

OTHER = "Other"
"""Class of found cells of no marked kind."""

PROBABILITY, GUESS = "Probability", "Starter probability"
"""Measurements of the probabilities of kinds: of those that were marked, and of the starter's own."""

CERTAIN_OTHER, UNMARKED, UNKNOWN_KIND = 0, -1, -2
"""Targets of found cells beside the kinds 1…C; a cell of unknown kind is marked, but without a class."""

_AT_ONCE = 1 << 16
"""Cells whose logits are computed at a time."""

_MOST_UNMARKED = 5000
"""Unmarked cells that are learned from: more of them change a head of a few hundred numbers little."""

_MOST_MARKED = 4000
"""Marks of each kind that are learned from."""

_DECAY_OF_ONE_MARK, _DECAYS = 10.0, (0.003, 1.0)
"""λ times the marks of a kind, and the bounds of λ. These and the next two were chosen on the training and
validation images of BRCA-M2C."""

_MARKS_OF_PRIOR = 20
"""Marks that weigh as much in a threshold as the belief in equal odds."""

_FROM_EVEN = (-1.0, 1.5)
"""How far a threshold may be from equal odds, in logits."""

_BETWEEN_KINDS = 0.5
"""How much of the differences between the thresholds of several kinds is kept. CRCHisto was looked at too
when it was chosen, so that scores there are not blind to it."""

_STEPS, _NEWTON_STEPS, _LARGEST_STEP = 6, 2, 4.0
_SMALLEST_SPREAD = 1e-6

_FEW_MARKS = 5
_LEAST_AUC = 0.6
"""Area under the ROC curve of held-out marks below which two kinds are told apart hardly better than by
chance."""

_MANY_MARKS = 1000
_NEARLY_ALL = 0.98
_FOLDS = 3
_MATCH_UM = 3.0

_GENERIC = re.compile(r"(any |all )?(cells?|nucle(us|i)|annotations?|marks?|unclassified)", re.IGNORECASE)
"""Names that say "this is a cell", and not which."""


def named_kinds(tables: Sequence[Cells], *, leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Return the kinds that marks name; classes as "cell" or "nucleus", and "Other", name none.

    >>> named_kinds([Cells([[0, 0], [9, 9]], classes=("Nucleus", "Lymphocyte"), label=[0, 1])])
    ('Lymphocyte',)
    """
    counts = [cells.counts() for cells in tables]
    names = dict.fromkeys(name for table in counts for name, count in table.items() if count)
    return tuple(
        name
        for name in names
        if not _GENERIC.fullmatch(name.strip()) and name != OTHER and name not in leave_out
    )


def with_one_spelling(tables: Sequence[Cells], *, spelling: Sequence[str] = ()) -> list[Cells]:
    """Return marks in which names that differ only in case are one class.

    It is spelled as in ``spelling``, otherwise as most marks spell it, with a warning.

    >>> marks = Cells([[0, 0], [1, 1]], classes=("Tumour", "tumour"), label=[0, 1])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     with_one_spelling([marks])[0].counts()
    {'Tumour': 2}
    """
    counts: Counter[str] = Counter()
    for cells in tables:
        counts.update({name: count for name, count in cells.counts().items() if count})
    spelled = {name.casefold().strip(): name for name in spelling}
    for name, _ in counts.most_common():
        spelled.setdefault(name.casefold().strip(), name)
    changed = {name: spelled[name.casefold().strip()] for name in counts}
    changed = {name: other for name, other in changed.items() if name != other}
    if not changed:
        return list(tables)
    if not spelling:
        listed = ", ".join(f"{name!r} as {other!r}" for name, other in changed.items())
        _warn(f"class names that differ only in case are learned as one: {listed}")
    return [cells.renamed(changed) for cells in tables]


def kind_targets(
    found: Cells, marks: Cells, kinds: Sequence[str], *, radius_um: float = _MATCH_UM
) -> NDArray[np.int64]:
    """Return what marks say about found cells, for :func:`learn_kinds`.

    A mark is of a found cell that it lies in, or else of one within the radius; each cell has at most one
    mark, and of marks of different classes on one cell the nearest counts, with a warning. Marks of no class,
    or of a class as "cell", do not say which kind it is. Marks of all other classes that are not among the
    kinds, and unmarked cells in exhaustive regions, are certainly "other".

    >>> found = Cells([[0, 0], [50, 0], [90, 0]], mpp=0.5)
    >>> marks = Cells([[1, 0], [51, 0]], classes=("lymphocyte", "tumour"), label=[0, 1], mpp=0.5)
    >>> kind_targets(found, marks, ["lymphocyte"])
    array([ 1,  0, -1])
    """
    target = np.full(len(found), UNMARKED)
    mpp = marks.mpp or found.mpp or 1.0
    for region in marks.regions:
        shapely.prepare(region)
        target[shapely.contains_xy(region, *found.xy.T)] = CERTAIN_OTHER
    of_class = [
        kinds.index(name) + 1
        if name in kinds
        else UNKNOWN_KIND
        if _GENERIC.fullmatch(name.strip())
        else CERTAIN_OTHER
        for name in marks.classes
    ]
    said = np.array([*of_class, UNKNOWN_KIND])[marks.label]  # the last one is for no class
    pairs = _near_or_inside(found, marks, radius_um / mpp)
    cell_of, _ = pairs.matched()
    marked = np.flatnonzero(cell_of >= 0)
    target[cell_of[marked]] = said[marked]
    mark_of = np.full(len(found), -1)
    mark_of[cell_of[marked]] = marked
    row, other = pairs.row, mark_of[pairs.column]  # two marks on one cell, if they are near each other
    close = np.hypot(*(marks.xy[row] - marks.xy[other]).T) <= radius_um / mpp / 2 if len(row) else row > 0
    differ = (other >= 0) & (np.minimum(said[row], said[other]) >= 0) & (said[row] != said[other])
    unlike = np.unique(row[(cell_of[row] < 0) & close & differ])
    if len(unlike):
        x, y = marks.xy[unlike[0]]
        _warn(
            f"{counted(len(unlike), 'mark')} on cells that are marked as another class, the first at "
            f"({x:.0f}, {y:.0f}); of two marks on one cell the nearer to its centre counts"
        )
    return target


def _near_or_inside(found: Cells, marks: Cells, radius: float) -> Candidates:
    """Return pairs of marks and found cells; one that lies in the outline of a cell prefers this cell."""
    shape = len(marks), len(found)
    if not all(shape):
        return Candidates.within(marks.xy, found.xy, radius=radius)
    reach = radius
    if found.outline is not None:
        bounds = shapely.bounds(found.outline)
        reach = max(radius, float(np.nanmax(bounds[:, 2:] - bounds[:, :2], initial=0)))
    # Of a million cells few are near a mark, and only these are looked at.
    near = np.flatnonzero(np.isfinite(KDTree(marks.xy).query(found.xy, distance_upper_bound=reach)[0]))
    close = Candidates.within(marks.xy, found.xy[near], radius=radius)
    if found.outline is None:
        return Candidates(close.row, near[close.column], close.cost, shape)
    row, column = shapely.STRtree(found.outline[near]).query(shapely.points(marks.xy), predicate="within")
    is_inside = np.isin(close.row * len(near) + close.column, row * len(near) + column)
    distance = np.hypot(*(marks.xy[row] - found.xy[near][column]).T)
    return Candidates(
        np.concatenate([row, close.row[~is_inside]]),
        near[np.concatenate([column, close.column[~is_inside]])],
        np.concatenate([distance / max(1.0, reach), 10 + close.cost[~is_inside] / radius]),
        shape,
    )


@dataclass(frozen=True, eq=False)
class KindHead:
    """Linear head from the features of a found cell to the probabilities of its kinds.

    Attributes:
        names: of the kinds, in the order of the outputs.
        weight: ``(K, F)`` float32.
        bias: ``(K,)`` float32.
        colors: of the kinds, as ``#rrggbb``; empty for those that the cells have.
        is_guess: nobody marked these kinds. Cells keep their class, and the probabilities are measurements.
    """

    names: tuple[str, ...]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    colors: tuple[str, ...] = ()
    is_guess: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the head as JSON holds it."""
        return {
            "names": list(self.names),
            "colors": list(self.colors),
            "weight": self.weight.astype(float).tolist(),
            "bias": self.bias.astype(float).tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the head of :meth:`as_json`; a ValueError if it is none."""
        names, colors = tuple(map(str, content["names"])), tuple(map(str, content["colors"]))
        weight, bias = np.array(content["weight"], np.float32), np.array(content["bias"], np.float32)
        if weight.ndim != 2 or len(names) != len(weight) or bias.shape != (len(names),):
            raise ValueError("a head of another size")
        return cls(names, weight, bias, colors)

    def logits(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map features ``(N, F)`` to logits ``(N, K)``."""
        parts = np.array_split(features, -(-len(features) // _AT_ONCE) or 1)
        return np.concatenate([part.astype(np.float32) @ self.weight.T + self.bias for part in parts])

    def assign(self, cells: Cells, features: NDArray[np.floating]) -> Cells:
        """Return the cells with their most probable kinds, and the probabilities as measurements.

        >>> head = KindHead(("Other", "lymphocyte"), np.array([[0], [1]], "f4"), np.zeros(2, "f4"))
        >>> head.assign(Cells([[0, 0], [1, 1]]), np.array([[-2.0], [3.0]])).counts()
        {'Other': 1, 'lymphocyte': 1}
        """
        p = np.round(softmax(self.logits(features), axis=1), 4)
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
            label=p.argmax(axis=1).astype(np.int16),
            colors=colors,
            measurements={**kept, PROBABILITY: p.max(axis=1, initial=0), **names},
        )


def _is_of_kinds(measurement: str) -> bool:
    return measurement == PROBABILITY or measurement.startswith((f"{PROBABILITY} ", f"{GUESS} "))


@dataclass(frozen=True, eq=False)
class MarkedCells:
    """What marks say about found cells.

    Attributes:
        kinds: that the marks name.
        target: ``(N,)`` of the found cells, see :func:`learn_kinds`.
        colors: of the kinds, as ``#rrggbb``.
    """

    kinds: tuple[str, ...]
    target: NDArray[np.int64]
    colors: tuple[str, ...]

    @classmethod
    def of(cls, found: Cells, marks: Cells) -> Self:
        """Match marks with found cells.

        Raises:
            InputError: the marks name no kind, or no found cell lies near a mark.
        """
        (marks,) = with_one_spelling([marks])
        kinds = named_kinds([marks], leave_out=(REJECTED,))
        if not kinds:
            raise InputError("the marks name no kind of cell; give them classes such as Lymphocyte or Tumour")
        target = kind_targets(found, marks, kinds)
        if not (target > 0).any():
            raise InputError(
                f"none of {counted(len(found), 'cell')} lies near a mark of {', '.join(kinds)}, so there is "
                "nothing to learn kinds from; are the cells and the marks of the same slide?"
            )
        known = dict(zip(marks.classes, marks.colors or (), strict=False))
        colors = (known.get(name, PALETTE[k % len(PALETTE)]) for k, name in enumerate(kinds))
        return cls(kinds, target, tuple("#" + bytes(color).hex() for color in colors))

    def learn(self, features: NDArray[np.floating], *, seed: int = 0) -> KindHead:
        """Learn the kinds from the features ``(N, F)`` of all found cells."""
        head = learn_kinds(features, self.target, self.kinds, seed=seed)
        known = dict(zip(self.kinds, self.colors, strict=True))
        grey = "#" + bytes(GREY).hex()
        return replace(head, colors=tuple(known.get(name, grey) for name in head.names))


def rekind(found: Cells, features: NDArray[np.floating], marks: Cells, *, seed: int = 0) -> Cells:
    """Return found cells with the kinds that marks name; places, outlines and scores stay.

    A second for 100,000 cells: :meth:`MarkedCells.of`, :meth:`MarkedCells.learn`, :meth:`KindHead.assign`.

    Args:
        found: all found cells of a slide, with or without outlines.
        features: ``(N, F)`` of each.
        marks: with class names, in the same pixels.
        seed: of the choice of unmarked cells.

    >>> found = Cells([[0, 0], [50, 0], [90, 0]], mpp=0.5)
    >>> marks = Cells([[1, 0], [51, 0]], classes=("a", "b"), label=[0, 1], mpp=0.5)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     rekind(found, np.array([[3.0], [-3.0], [3.0]]), marks).counts()
    {'Other': 0, 'a': 2, 'b': 1}
    """
    return MarkedCells.of(found, marks).learn(features, seed=seed).assign(found, features)


def learn_kinds(
    features: NDArray[np.floating],
    target: NDArray[np.integer],
    kinds: Sequence[str],
    *,
    seed: int = 0,
) -> KindHead:
    """Learn the kinds of found cells from a few marked ones.

    The more marks, the weaker the regularisation. Of many unmarked cells some are drawn, so that the time
    hardly grows with the slide. The threshold of each kind is the one that maximises recall² / P(predicted)
    over the marks (see :func:`~sparseshot.metrics.calibrate_threshold`), bounded, and shrunk towards equal
    odds where marks are few. It is folded into the bias: a cell is of the kind with the highest logit.

    Args:
        features: ``(N, F)`` of all found cells.
        target: ``(N,)`` 1…C for marked kinds, :data:`CERTAIN_OTHER`, :data:`UNMARKED` or
            :data:`UNKNOWN_KIND`.
        kinds: C names.
        seed: of the choice of unmarked cells.

    Returns:
        The head; its first output is :data:`OTHER`.

    >>> random = np.random.default_rng(0)
    >>> features, target = random.normal(size=(1000, 4)), np.full(1000, UNMARKED)
    >>> features[:200, 0] += 4
    >>> target[:20] = 1
    >>> kind = learn_kinds(features, target, ["lymphocyte"]).logits(features).argmax(axis=1)
    >>> bool(kind[:200].mean() > 0.9), bool(kind[200:].mean() < 0.1)
    (True, True)
    """
    target, kinds = _learnable(np.asarray(target), kinds)
    counts = np.bincount(target[target >= 0], minlength=len(kinds) + 1)
    random = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            _some(np.flatnonzero(target == UNMARKED), _MOST_UNMARKED, random),
            *(_some(np.flatnonzero(target == kind), _MOST_MARKED, random) for kind in range(len(counts))),
        ]
    )
    x, y = np.asarray(features[rows], np.float64), target[rows]
    mean, spread = x.mean(axis=0), x.std(axis=0) + _SMALLEST_SPREAD
    x = (x - mean) / spread
    decay = float(np.clip(_DECAY_OF_ONE_MARK / counts[1:].mean(), *_DECAYS))
    weight, bias = fit(x, y, kinds=len(kinds), decay=decay)
    bias -= _thresholds(x @ weight + bias, y)
    _warn_of_likeness(x, y, kinds, decay, random)
    _warn_of_extremes((x @ weight + bias)[y == UNMARKED], kinds)
    weight /= spread[:, None]
    bias -= mean @ weight
    return KindHead(
        (OTHER, *kinds),
        np.concatenate([np.zeros((1, x.shape[1])), weight.T]).astype(np.float32),
        np.append(0, bias).astype(np.float32),
    )


def _learnable(
    target: NDArray[np.integer], kinds: Sequence[str]
) -> tuple[NDArray[np.integer], tuple[str, ...]]:
    """Return the target and the kinds without those of which no found cell is marked."""
    counts = np.bincount(target[target >= 0], minlength=len(kinds) + 1)[1:]
    kept = [name for name, count in zip(kinds, counts, strict=True) if count]
    missing = [name for name in kinds if name not in kept]
    if not kept:
        raise InputError(
            f"no cell was found near the marks of {', '.join(kinds) or 'any kind'}, so there is nothing to "
            "learn kinds from; mark the centres of nuclei, and compare them with what is found"
        )
    if missing:
        _warn(
            f"no cell was found near the marks of {', '.join(missing)}: this class is not learned; mark the "
            "centres of its nuclei"
        )
    few = [f"{name} ({count})" for name, count in zip(kinds, counts, strict=True) if 0 < count < _FEW_MARKS]
    if few:
        _warn(f"few marks to tell a kind by: {', '.join(few)}; mark at least {_FEW_MARKS} of each")
    number = {kinds.index(name) + 1: k + 1 for k, name in enumerate(kept)}
    new = np.array([0, *(number.get(k + 1, UNKNOWN_KIND) for k in range(len(kinds)))])
    return np.where(target > 0, new[np.maximum(target, 0)], target), tuple(kept)


def _warn_of_likeness(
    x: NDArray[np.float64],
    y: NDArray[np.integer],
    kinds: Sequence[str],
    decay: float,
    random: np.random.Generator,
) -> None:
    """Warn of kinds that held-out marks do not separate."""
    counts = np.bincount(y[y >= 0], minlength=len(kinds) + 1)
    if len(kinds) < 2 or counts[1:].min() < _FEW_MARKS or counts[1:].max() > _MANY_MARKS:
        return
    few = np.append(np.flatnonzero(y == UNMARKED)[::4], np.flatnonzero(y >= 0))
    x, y = x[few], y[few]
    fold = np.where(y >= 0, random.integers(_FOLDS, size=len(y)), -1)
    held = np.zeros((len(y), len(kinds)))
    for k in range(_FOLDS):
        present = np.bincount(y[(y >= 0) & (fold != k)], minlength=len(kinds) + 1)[1:]
        if not present.all():
            return
        weight, bias = fit(x[fold != k], y[fold != k], kinds=len(kinds), decay=decay)
        held[fold == k] = x[fold == k] @ weight + bias
    for one, other in itertools.combinations(range(len(kinds)), 2):
        score = held[:, one] - held[:, other]
        if _auc(score[y == one + 1], score[y == other + 1]) < _LEAST_AUC:
            _warn(
                f"the marks of {kinds[one]} and {kinds[other]} look alike to the model, which tells them "
                "apart hardly better than by chance; check the marks, mark more, or learn both as one class"
            )


def _auc(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """Return the probability that a value of the first exceeds one of the second."""
    return float((high[:, None] > low).mean() + (high[:, None] == low).mean() / 2)


def _warn_of_extremes(logits: NDArray[np.float64], kinds: Sequence[str]) -> None:
    """Warn of kinds that no unmarked cell is of, and of one that nearly all are of."""
    if len(logits) < _FEW_MARKS:
        return
    shares = np.bincount(_probabilities(logits).argmax(axis=1), minlength=len(kinds) + 1) / len(logits)
    if absent := [name for name, share in zip(kinds, shares[1:], strict=True) if share == 0]:
        _warn(f"no unmarked cell looks like {', '.join(absent)}; mark more of them, in other places")
    if shares[1:].max() > _NEARLY_ALL:
        name = kinds[int(shares[1:].argmax())]
        _warn(
            f"nearly every cell looks like {name}; if that is wrong, mark some that are not, as another "
            f"class or as {OTHER!r}"
        )


def _warn(message: str) -> None:
    warnings.warn(message, TrainingWarning, stacklevel=3)


def _thresholds(logits: NDArray[np.float64], target: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the logit of each kind against the rest from which on a cell is of that kind."""
    kinds = logits.shape[1]
    every = np.concatenate([np.zeros((len(logits), 1)), logits], axis=1)
    thresholds = np.empty(kinds)
    for kind in range(1, kinds + 1):
        against = every[:, kind] - logsumexp(np.delete(every, kind, axis=1), axis=1)
        marked = target == kind
        p = calibrate_threshold(expit(against[marked]), expit(against[target <= 0])).threshold
        marks = int(marked.sum())
        trust, even = marks / (marks + _MARKS_OF_PRIOR), -np.log(kinds)
        thresholds[kind - 1] = even + trust * np.clip(np.log(p / (1 - p)) - even, *_FROM_EVEN)
    common = thresholds.mean()
    return np.asarray(common + _BETWEEN_KINDS * (thresholds - common))


def _some(rows: NDArray[np.intp], most: int, random: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def fit(
    features: NDArray[np.floating],
    target: NDArray[np.integer],
    *,
    kinds: int,
    decay: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimise the loss of this module by Newton's method while ρ rises.

    Args:
        features: ``(N, F)``.
        target: ``(N,)`` 1…C, :data:`CERTAIN_OTHER` or :data:`UNMARKED`.
        kinds: C.
        decay: λ.

    Returns:
        Weights ``(F, C)`` and biases ``(C,)`` of the kinds; the logit of other is 0.
    """
    marked, unmarked = target >= 0, target == UNMARKED
    known = _with_one(features[marked]), np.eye(kinds + 1)[target[marked]][:, 1:]
    free = _with_one(features[unmarked])
    share = 1 / np.bincount(target[marked], minlength=kinds + 1).clip(1)[target[marked]]
    weight_known = share / share.sum() / (2 if len(free) else 1)
    decays = np.append(np.full(features.shape[1], decay), 1e-6)
    w = np.zeros((features.shape[1] + 1, kinds))
    rho = Sigmoid()
    for step in range(_STEPS):
        counted = free
        if step:
            counted = free[1 - _probabilities(free @ w)[:, 0] < rho(step / (_STEPS - 1))]
        a = np.concatenate([known[0], counted])
        y = np.concatenate([known[1], np.zeros((len(counted), kinds))])
        weight = np.concatenate([weight_known, np.full(len(counted), 0.5 / max(1, len(counted)))])
        for _ in range(_NEWTON_STEPS):
            w = w - _newton_step(a, y, weight, w, decays)
    return w[:-1], w[-1]


def _newton_step(
    a: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    w: NDArray[np.float64],
    decays: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a Newton step of weighted softmax regression, shortened where it is a leap."""
    (size, kinds), p = w.shape, _probabilities(a @ w)[:, 1:]
    gradient = a.T @ ((p - y) * weight[:, None]) + decays[:, None] * w
    hessian = np.empty((kinds, size, kinds, size))
    for i in range(kinds):
        for j in range(i, kinds):
            part = a.T @ (a * (weight * p[:, i] * ((i == j) - p[:, j]))[:, None])
            hessian[i, :, j], hessian[j, :, i] = part, part
    flat = hessian.reshape(kinds * size, kinds * size) + np.diag(np.tile(decays, kinds))
    step = np.linalg.solve(flat, gradient.T.ravel()).reshape(kinds, size).T
    return np.asarray(step * min(1.0, _LARGEST_STEP / max(float(np.abs(a @ step).max()), 1e-9)))


def _probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax over other, whose logit is 0, and the kinds."""
    return np.asarray(softmax(np.concatenate([np.zeros((len(logits), 1)), logits], axis=1), axis=1))


def _with_one(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
