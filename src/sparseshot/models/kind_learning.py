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
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.losses.schedules import Sigmoid
from sparseshot.metrics import calibrate_threshold
from sparseshot.metrics.kind_quality import FEWEST, PLACE_UM, KindEvidence
from sparseshot.models.kind_head import OTHER, KindHead, with_surroundings

CERTAIN_OTHER, UNMARKED, UNKNOWN_KIND = 0, -1, -2
"""Targets of found cells beside the kinds 1…C; a cell of unknown kind is marked, but without a class."""

_MOST_UNMARKED = 5000
"""Unmarked cells that are learned from: more of them change a head of a few hundred numbers little."""

_MOST_MARKED = 20_000
"""Marks of each kind that are learned from."""

_DECAY_OF_ONE_MARK, _DECAYS = 3.5, (0.003, 4.0)
"""λ times the marks of a kind over the root of the number of features, and the bounds of λ. These and the
next two were chosen on the training and validation images of BRCA-M2C, the first on CRCHisto too."""

_MARKS_OF_PRIOR = 20
"""Marks that weigh as much in a threshold as the belief in equal odds."""

_FROM_EVEN = (-1.0, 1.5)
"""How far a threshold may be from equal odds, in logits."""

_BETWEEN_KINDS = 0.5
"""How much of the differences between the thresholds of several kinds is kept. CRCHisto was looked at too
when it was chosen, so that scores there are not blind to it."""

_STEPS, _NEWTON_STEPS, _LARGEST_STEP = 6, 2, 4.0
_SMALLEST_SPREAD = 1e-6

_LEAST_AUC = 0.6
"""Area under the ROC curve of held-out marks below which two kinds are told apart hardly better than by
chance."""

_MANY_MARKS = 1000
_NEARLY_ALL = 0.98
_FOLDS = 3


def learn_kinds(
    features: NDArray[np.floating],
    target: NDArray[np.integer],
    kinds: Sequence[str],
    *,
    um: NDArray[np.float64] | None = None,
    sampled: float = 1.0,
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
        um: ``(N, 2)`` places of the cells in µm. The head then looks at the cells around each cell, too.
        sampled: share of the unmarked cells that are among these.
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
    chosen = features[rows] if um is None else with_surroundings(features, um, rows)
    x, y = chosen.astype(np.float64), target[rows]
    mean, spread = x.mean(axis=0), x.std(axis=0) + _SMALLEST_SPREAD
    x = (x - mean) / spread
    decay = _decay(x, counts[1:])
    weight, bias = fit(x, y, kinds=len(kinds), decay=decay)
    # Unmarked cells are a sample of all of them, so of the marked ones as small a share stands for all cells.
    share = sampled * (y == UNMARKED).sum() / max(1, (target == UNMARKED).sum())
    stands = (y == UNMARKED) | (random.random(len(y)) < share)
    thresholds = _thresholds(x @ weight + bias, y, stands)
    bias -= thresholds
    evidence = _held_out(x, y, kinds, _places(um, rows), random, decay=decay, thresholds=thresholds)
    _warn_of_extremes((x @ weight + bias)[y == UNMARKED], kinds)
    weight /= spread[:, None]
    bias -= mean @ weight
    return KindHead(
        (OTHER, *kinds),
        np.concatenate([np.zeros((1, x.shape[1])), weight.T]).astype(np.float32),
        np.append(0, bias).astype(np.float32),
        looks_around=um is not None,
        evidence=evidence,
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
        warn(
            f"no cell was found near the marks of {', '.join(missing)}: this class is not learned; mark the "
            "centres of its nuclei"
        )
    few = [f"{name} ({count})" for name, count in zip(kinds, counts, strict=True) if 0 < count < FEWEST]
    if few:
        warn(f"few marks to tell a kind by: {', '.join(few)}; mark at least {FEWEST} of each")
    number = {kinds.index(name) + 1: k + 1 for k, name in enumerate(kept)}
    new = np.array([0, *(number.get(k + 1, UNKNOWN_KIND) for k in range(len(kinds)))])
    return np.where(target > 0, new[np.maximum(target, 0)], target), tuple(kept)


def _decay(x: NDArray[np.float64], counts: NDArray[np.integer]) -> float:
    """Return λ for the numbers of marks of the kinds."""
    return float(np.clip(_DECAY_OF_ONE_MARK * x.shape[1] ** 0.5 / counts.mean(), *_DECAYS))


def _places(um: NDArray[np.float64] | None, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the number of the square that each cell lies in; without places each cell is one."""
    if um is None:
        return np.arange(len(rows))
    squares = np.floor(um[rows] / PLACE_UM).astype(np.int64)
    return np.asarray(np.unique(squares, axis=0, return_inverse=True)[1]).ravel()


def _held_out(
    x: NDArray[np.float64],
    y: NDArray[np.integer],
    kinds: Sequence[str],
    place: NDArray[np.intp],
    random: np.random.Generator,
    *,
    decay: float,
    thresholds: NDArray[np.float64],
) -> KindEvidence | None:
    """Hold out the marks of some places after the other; warn of kinds that they do not separate.

    Regularisation and thresholds stay those of the head, because a change of them would be taken for one of
    the marks.

    Returns:
        The evidence; None where marks are too few, or in too few places.
    """
    marks = [_some(np.flatnonzero(y == kind), _MANY_MARKS, random) for kind in range(len(kinds) + 1)]
    if max(map(len, marks[1:])) < FEWEST:
        return None
    rows = np.concatenate([np.flatnonzero(y == UNMARKED)[::2], *marks])
    x, y = x[rows], y[rows]
    place = np.unique(place[rows], return_inverse=True)[1]
    of_marks, rank = np.unique(place[y >= 0]), np.zeros(place.max() + 1, np.intp)
    rank[random.permutation(of_marks)] = np.arange(len(of_marks))
    fold = np.where(y >= 0, rank[place] % _FOLDS, -1)
    held = np.zeros((len(y), len(kinds)))
    for k in range(_FOLDS):
        own = fold != k
        present = np.bincount(y[(y >= 0) & own], minlength=len(kinds) + 1)[1:]
        if not present.all():
            return None
        weight, bias = fit(x[own], y[own], kinds=len(kinds), decay=decay)
        held[~own] = x[~own] @ weight + bias - thresholds
    for one, other in itertools.combinations(range(len(kinds)), 2):
        first, second = y == one + 1, y == other + 1
        score = held[:, one] - held[:, other]
        if min(first.sum(), second.sum()) >= FEWEST and _auc(score[first], score[second]) < _LEAST_AUC:
            warn(
                f"the marks of {kinds[one]} and {kinds[other]} look alike to the model, which tells them "
                "apart hardly better than by chance; check the marks, mark more, or learn both as one class"
            )
    known = y >= 0
    given = _probabilities(held[known]).argmax(axis=1)
    return KindEvidence.of((OTHER, *kinds), y[known], given, place[known])


def _auc(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """Return the probability that a value of the first exceeds one of the second."""
    return float((high[:, None] > low).mean() + (high[:, None] == low).mean() / 2)


def _warn_of_extremes(logits: NDArray[np.float64], kinds: Sequence[str]) -> None:
    """Warn of kinds that no unmarked cell is of, and of one that nearly all are of."""
    if len(logits) < FEWEST:
        return
    shares = np.bincount(_probabilities(logits).argmax(axis=1), minlength=len(kinds) + 1) / len(logits)
    if absent := [name for name, share in zip(kinds, shares[1:], strict=True) if share == 0]:
        warn(f"no unmarked cell looks like {', '.join(absent)}; mark more of them, in other places")
    if shares[1:].max() > _NEARLY_ALL:
        name = kinds[int(shares[1:].argmax())]
        warn(
            f"nearly every cell looks like {name}; if that is wrong, mark some that are not, as another "
            f"class or as {OTHER!r}"
        )


def warn(message: str) -> None:
    """Warn of marks."""
    warnings.warn(message, TrainingWarning, stacklevel=3)


def _thresholds(
    logits: NDArray[np.float64], target: NDArray[np.integer], stands_for_all: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the logit of each kind against the rest from which on a cell is of that kind."""
    kinds = logits.shape[1]
    every = np.concatenate([np.zeros((len(logits), 1)), logits], axis=1)
    thresholds = np.empty(kinds)
    for kind in range(1, kinds + 1):
        against = every[:, kind] - logsumexp(np.delete(every, kind, axis=1), axis=1)
        marked = target == kind
        p = calibrate_threshold(
            expit(against[marked]), expit(against[stands_for_all | (target == CERTAIN_OTHER)])
        ).threshold
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
    rough = a.astype(np.float32)  # it only decides how soon the minimum is reached
    for i in range(kinds):
        for j in range(i, kinds):
            share = (weight * p[:, i] * ((i == j) - p[:, j])).astype(np.float32)
            part = rough.T @ (rough * share[:, None])
            hessian[i, :, j], hessian[j, :, i] = part, part
    flat = hessian.reshape(kinds * size, kinds * size) + np.diag(np.tile(decays, kinds))
    step = np.linalg.solve(flat, gradient.T.ravel()).reshape(kinds, size).T
    return np.asarray(step * min(1.0, _LARGEST_STEP / max(float(np.abs(a @ step).max()), 1e-9)))


def _probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax over other, whose logit is 0, and the kinds."""
    return np.asarray(softmax(np.concatenate([np.zeros((len(logits), 1)), logits], axis=1), axis=1))


def _with_one(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
