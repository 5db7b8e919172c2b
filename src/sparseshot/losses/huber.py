"""Huber loss on probabilities."""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.losses.locations import Call, Locations, class_log_probabilities
from sparseshot.losses.parameters import POSITIVE
from sparseshot.losses.signature import Loss


@dataclass(eq=False, repr=False, kw_only=True)
class HuberLoss(Loss):
    r"""Huber loss between probabilities and labels, with every unannotated location as background.

    .. math:: L = \sum \tfrac12 \sum_{c=0}^{C} h_\delta(p_c - [y = c]), \qquad
        h_\delta(d) = \tfrac12 d^2 \text{ if } |d| \le \delta, \text{ else } \delta (|d| - \tfrac12 \delta)

    The half before the sum makes two logits (0, z) equal to one logit z. A probability is never more than 1
    from a label, so δ ≥ 1 is half the squared error; a smaller δ bounds the gradient of a single location.

    Args:
        delta: δ, above 0.

    >>> HuberLoss()(torch.zeros(1, 1), torch.tensor([1]))
    tensor(0.1250)
    """

    delta: Annotated[float, POSITIVE] = 1.0

    def losses(self, locations: Locations, call: Call) -> Tensor:  # noqa: ARG002
        """Return the loss of each location."""
        if locations.logits.shape[1] == 1:  # both halves of the sum are equal
            p = locations.logits[:, 0].sigmoid()
            return F.huber_loss(p, locations.label.to(p.dtype), reduction="none", delta=self.delta)
        p = class_log_probabilities(locations.logits).exp()
        label = torch.zeros_like(p).scatter(1, locations.label.unsqueeze(1), 1.0)
        return F.huber_loss(p, label, reduction="none", delta=self.delta).sum(1) / 2
