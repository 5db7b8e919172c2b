"""Focal loss, and background recalibration, which mirrors it."""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.losses.locations import Call, Locations, label_logit
from sparseshot.losses.parameters import INSIDE, NOT_NEGATIVE, SHARE_OR_ZERO
from sparseshot.losses.signature import Loss
from sparseshot.losses.threshold import threshold_logit


@dataclass(eq=False, repr=False, kw_only=True)
class FocalLoss(Loss):
    r"""Focal loss (Lin et al., ICCV 2017) with every unannotated location as background.

    .. math:: L = \sum -\alpha_y (1 - p(y))^\gamma \log p(y), \qquad
        \alpha_y = \alpha \text{ if } y > 0, \text{ else } 1 - \alpha

    The mean is over all locations that are not ignored; Lin et al. divide by the number of marked ones.

    Args:
        alpha: weight of the foreground, from 0 to 1.
        gamma: focal exponent.

    >>> FocalLoss()(torch.zeros(1, 1), torch.tensor([1]))  # 0.25 · 0.5² · log 2
    tensor(0.0433)
    """

    alpha: Annotated[float, SHARE_OR_ZERO] = 0.25
    gamma: Annotated[float, NOT_NEGATIVE] = 2.0

    def losses(self, locations: Locations, call: Call) -> Tensor:  # noqa: ARG002
        """Return the loss of each location."""
        return self._balance(locations) * self._focal(label_logit(locations))

    def _balance(self, locations: Locations) -> Tensor:
        return torch.where(locations.label > 0, self.alpha, 1.0 - self.alpha)

    def _focal(self, logit: Tensor) -> Tensor:
        """Return −(1 − p)^γ log p, p = σ(logit); the power in log space, where its derivative is finite."""
        return -torch.exp(self.gamma * F.logsigmoid(-logit)) * F.logsigmoid(logit)


@dataclass(eq=False, repr=False, kw_only=True)
class BackgroundRecalibration(FocalLoss):
    r"""Background recalibration (Zhang et al., ICASSP 2020): doubtful background is mirrored to foreground.

    Annotated locations have the focal loss. For the unannotated, with w their weight and q = 1 − p,

    .. math:: L = w (1 - \alpha) \cdot
        \begin{cases} -p^\gamma \log q & q \ge \tau \\ -\beta q^\gamma \log p & q < \tau \end{cases}

    Args:
        alpha: weight of the foreground; background has 1 − α.
        gamma: focal exponent.
        tau: probability of background from which it is believed, in (0, 1).
        beta: weight of the mirrored part.
        unannotated_weight: w; 0.1 in the authors' configuration, for anchors far from any annotated object.

    >>> logits, target = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 0])
    >>> BackgroundRecalibration(unannotated_weight=1.0, reduction="none")(logits, target)  # a mirror
    tensor([0.0170, 0.0170])
    """

    tau: Annotated[float, INSIDE] = 0.5
    beta: Annotated[float, NOT_NEGATIVE] = 1.0
    unannotated_weight: Annotated[float, NOT_NEGATIVE] = 0.1

    def losses(self, locations: Locations, call: Call) -> Tensor:  # noqa: ARG002
        """Return the loss of each location."""
        logit = label_logit(locations)
        weight = self._balance(locations) * torch.where(locations.annotated, 1.0, self.unannotated_weight)
        # The label of an unannotated location is background, so this is q < τ.
        doubtful = locations.unannotated & (logit.detach() < threshold_logit(self.tau))
        return weight * torch.where(doubtful, self.beta * self._focal(-logit), self._focal(logit))
