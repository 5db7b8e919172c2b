"""Exclusive cross-entropy in torch operations: any device, any precision, compiled or not, any derivative."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.losses.locations import Call, Locations, Reduction, foreground_logit, label_loss, reduce
from sparseshot.losses.parameters import NOT_NEGATIVE, SHARE
from sparseshot.losses.threshold import NEVER, over_threshold


@dataclass(frozen=True, eq=False, kw_only=True)
class Terms:
    """Exclusive cross-entropy without the batch; the defaults are ordinary cross-entropy.

    See :func:`~sparseshot.losses.exclusive_cross_entropy` for the attributes not explained here.

    Attributes:
        threshold: foreground logit from which an unannotated location is excluded, or ``NEVER``.
        excluded: booleans ``(N, *)``: further locations to exclude if unannotated.
    """

    threshold: float = NEVER
    alpha: float = 1.0
    gamma: float = 0.0
    max_excluded: float = 1.0
    excluded: Tensor | None = None
    class_weights: Tensor | None = None

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check("alpha", self.alpha)
        NOT_NEGATIVE.check("gamma", self.gamma)
        SHARE.check("max_excluded", self.max_excluded)


def excluded_locations(locations: Locations, terms: Terms) -> Tensor:
    """Return the locations that are excluded, ``(N, *)``."""
    logit = foreground_logit(locations.logits.detach())
    over = over_threshold(
        logit, locations.unannotated, threshold=terms.threshold, max_excluded=terms.max_excluded
    )
    return locations.unannotated & (over if terms.excluded is None else over | terms.excluded)


def plain_exclusive_cross_entropy(call: Call, terms: Terms, reduction: Reduction) -> Tensor:
    """Compute the loss by torch's own operations."""
    locations = call.read()
    logit = foreground_logit(locations.logits)
    log_p, log_q = F.logsigmoid(logit), F.logsigmoid(-logit)
    # p^γ in log space: with γ < 1 the derivative of the plain power is infinite at p = 0.
    unannotated_loss = -terms.alpha * torch.exp(terms.gamma * log_p) * log_q
    unannotated_loss = torch.where(excluded_locations(locations, terms), 0.0, unannotated_loss)
    losses = torch.where(locations.annotated, label_loss(locations), unannotated_loss)
    weights = locations.counted
    if terms.class_weights is not None:
        weights = weights * terms.class_weights.to(losses)[locations.label]
    return reduce(losses, weights, reduction)
