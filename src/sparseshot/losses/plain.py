"""Exclusive cross-entropy as torch writes it: any device, any precision, compiled or not, any derivative."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.losses.exclusion import over_threshold
from sparseshot.losses.targets import Batch, Reduction, foreground_logit, read_batch, reduced


@dataclass(frozen=True, eq=False)
class Terms:
    """The loss without the batch; see :func:`~sparseshot.losses.exclusive_cross_entropy`."""

    threshold: float
    """Foreground logit from which an unannotated location is excluded, or ``NEVER``."""
    alpha: float
    gamma: float
    max_excluded: float
    class_weights: Tensor | None
    reduction: Reduction


def annotated_loss(batch: Batch) -> Tensor:
    """Return −log p(y) at every location, y = 0 where not annotated."""
    if batch.logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(
            batch.logits[:, 0], batch.label.to(batch.logits.dtype), reduction="none"
        )
    return F.cross_entropy(batch.logits, batch.label, reduction="none")


def plain_exclusive_cross_entropy(
    logits: Tensor, target: Tensor, annotated: Tensor | None, excluded: Tensor | None, terms: Terms
) -> Tensor:
    """Compute the loss of ``terms`` by torch's own operations."""
    batch = read_batch(logits, target, annotated)
    logit = foreground_logit(batch.logits)
    log_p, log_q = F.logsigmoid(logit), F.logsigmoid(-logit)
    # p^γ in log space: with γ < 1 the derivative of the plain power is infinite at p = 0.
    unannotated_loss = -terms.alpha * torch.exp(terms.gamma * log_p) * log_q
    left_out = over_threshold(
        logit.detach(), batch.unannotated, threshold=terms.threshold, max_excluded=terms.max_excluded
    )
    if excluded is not None:
        left_out = left_out | excluded
    losses = torch.where(batch.annotated, annotated_loss(batch), torch.where(left_out, 0.0, unannotated_loss))
    return reduced(losses, batch.counted, terms.reduction, terms.class_weights, batch.label)
