"""Huber loss on probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import Reduction, check_reduction, class_log_probabilities, read_batch, reduced


def check_delta(delta: float) -> None:
    """Raise unless ``delta`` is positive."""
    if not delta > 0:
        raise InputError(f"delta is {delta}; give a number above 0")


def huber_loss(
    logits: Tensor,
    target: Tensor,
    *,
    annotated: Tensor | None = None,
    delta: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Huber loss between probabilities and labels, with every unannotated location as background.

    .. math:: L = \sum \tfrac12 \sum_{c=0}^{C} h_\delta(p_c - [y = c]), \qquad
        h_\delta(d) = \tfrac12 d^2 \text{ if } |d| \le \delta, \text{ else } \delta (|d| - \tfrac12 \delta)

    The half before the sum makes two logits (0, z) cost what one logit z does. A probability is never further
    than 1 from a label, so δ ≥ 1 is half the squared error; a smaller δ bounds the pull of a single location.

    >>> huber_loss(torch.zeros(1, 1), torch.tensor([1]))
    tensor(0.1250)
    """
    check_delta(delta)
    batch = read_batch(logits, target, annotated)
    p = class_log_probabilities(batch.logits).exp()
    label = torch.zeros_like(p).scatter(1, batch.label.unsqueeze(1), 1.0)
    return reduced(F.huber_loss(p, label, reduction="none", delta=delta).sum(1) / 2, batch.counted, reduction)


class HuberLoss(Loss):
    """:func:`huber_loss`."""

    def __init__(self, *, delta: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_delta(delta)
        check_reduction(reduction)
        self.delta, self.reduction = delta, reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return huber_loss(
            call.logits, call.target, annotated=call.annotated, delta=self.delta, reduction=self.reduction
        )
