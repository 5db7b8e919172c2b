"""The threshold above which unannotated locations are excluded, and the warning if nearly all are."""

import math
import warnings

import torch
from torch import Tensor

from sparseshot.errors import TrainingWarning
from sparseshot.losses.locations import IGNORE_INDEX, values_can_be_read
from sparseshot.losses.schedules import NOT_NEGATIVE, SHARE

NEVER = math.nan
"""The threshold that no logit reaches: nothing is ≥ NaN, not even an infinite logit."""


def threshold_logit(rho: float, beta: float = 1.0) -> float:
    """Return the foreground logit at which p = ρ^β.

    The test p ≥ ρ^β is made on logits, where it is exact: near 1 many logits round to the same p. With
    ρ^β = 1 nothing reaches the threshold, even where p rounds to 1.

    >>> threshold_logit(0.5), threshold_logit(1.0)
    (0.0, nan)
    """
    SHARE.check("rho", rho)
    NOT_NEGATIVE.check("beta", beta)
    tau = rho**beta
    if tau >= 1.0:
        return NEVER
    if tau <= 0.0:
        return -math.inf
    # As log2, because torch.compile keeps log2 symbolic, while log would freeze one rho into the graph.
    return math.log2(tau / (1.0 - tau)) * math.log(2.0)


def over_threshold(
    logit: Tensor, unannotated: Tensor, *, threshold: float, max_excluded: float = 1.0
) -> Tensor:
    """Return which foreground logits reach ``threshold``; of the unannotated, at most a share.

    If more than a ``max_excluded`` share of the unannotated reach it, only the most confident count. Equal
    logits are treated equally, so an untrained model with the same output everywhere excludes nothing.

    >>> logit, every = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(4, dtype=torch.bool)
    >>> over_threshold(logit, every, threshold=0.0, max_excluded=0.5)
    tensor([False, False,  True,  True])
    """
    over = logit >= threshold
    if max_excluded >= 1.0 or logit.numel() == 0:
        return over
    if values_can_be_read(logit):  # counting is far faster than sorting, and mostly enough
        few = max_excluded * int(unannotated.count_nonzero())
        if int((over & unannotated).count_nonzero()) <= few:
            return over
    ranked = torch.where(unannotated, logit, -math.inf).flatten().sort(descending=True).values
    allowed = (unannotated.sum() * max_excluded).long().clamp(max=logit.numel() - 1)
    first_too_many = ranked.gather(0, allowed.reshape(1))
    return over & (logit > first_too_many)


def output_confidence(logits: Tensor) -> Tensor:
    """Return what the authors' package compares with its threshold, ``(N, *)``: raw output, no probability.

    With one logit it is that logit. With several it is the difference of the largest two, so that confident
    background is excluded like confident foreground.

    >>> output_confidence(torch.tensor([[5.0, 1.0, 2.0]]))
    tensor([3.])
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    first, second = logits.topk(2, dim=1).values.unbind(1)
    return first - second


def excluded_share(
    excluded: Tensor, target: Tensor, *, annotated: Tensor | None = None, ignore_index: int = IGNORE_INDEX
) -> float:
    """Return the excluded share of the unannotated locations, 0 if there are none.

    >>> excluded_share(torch.tensor([True, False, False]), torch.tensor([0, 0, 1]))
    0.5
    """
    certain = target > 0 if annotated is None else annotated
    unannotated = int((~certain & (target.long() != ignore_index)).sum())
    return int(excluded.sum()) / max(unannotated, 1)


def warn_of_runaway(share: float, *, limit: float = 0.9) -> None:
    """Warn if nearly all unannotated locations are excluded, which is self-reinforcing.

    Excluded locations no longer hold the model back. So p rises and more is excluded, until no background
    is left to learn from and the model predicts foreground everywhere.
    """
    if share > limit:
        warnings.warn(
            f"{share:.0%} of the unannotated locations are excluded from the loss, which leaves hardly any "
            "background to learn from; raise rho, set max_excluded to 0.5, or mark certain background",
            TrainingWarning,
            stacklevel=2,
        )
