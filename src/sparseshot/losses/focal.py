"""Focal loss, and background recalibration, which mirrors it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.exclusion import threshold_logit
from sparseshot.losses.parameters import check_not_negative
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import (
    Batch,
    Reduction,
    check_reduction,
    label_logit,
    read_batch,
    reduced,
)


def check_focal(alpha: float, gamma: float) -> None:
    """Raise unless ``alpha`` and ``gamma`` are in their ranges."""
    if not 0.0 <= alpha <= 1.0:
        raise InputError(f"alpha is {alpha}; give the weight of the foreground, from 0 to 1")
    check_not_negative("gamma", gamma)


def _focal(logit: Tensor, gamma: float) -> Tensor:
    """Return −(1 − p)^γ log p, p = σ(logit); the power in log space, where its derivative is finite."""
    return -torch.exp(gamma * F.logsigmoid(-logit)) * F.logsigmoid(logit)


def _balance(batch: Batch, alpha: float) -> Tensor:
    return torch.where(batch.label > 0, alpha, 1.0 - alpha)


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    annotated: Tensor | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Focal loss (Lin et al., ICCV 2017) with every unannotated location as background.

    .. math:: L = \sum -\alpha_y (1 - p(y))^\gamma \log p(y), \qquad
        \alpha_y = \alpha \text{ if } y > 0, \text{ else } 1 - \alpha

    The mean goes over all locations that are not ignored; Lin et al. divide by the number of marked ones.

    >>> focal_loss(torch.zeros(1, 1), torch.tensor([1]))  # 0.25 · 0.5² · log 2
    tensor(0.0433)
    """
    check_focal(alpha, gamma)
    batch = read_batch(logits, target, annotated)
    return reduced(_balance(batch, alpha) * _focal(label_logit(batch), gamma), batch.counted, reduction)


def background_recalibration(
    logits: Tensor,
    target: Tensor,
    *,
    annotated: Tensor | None = None,
    tau: float = 0.5,
    beta: float = 1.0,
    alpha: float = 0.25,
    gamma: float = 2.0,
    unannotated_weight: float = 0.1,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Background recalibration (Zhang et al., ICASSP 2020): doubtful background is mirrored to foreground.

    Annotated locations have the focal loss. For the unannotated, with w their weight and q = 1 − p,

    .. math:: L = w (1 - \alpha) \cdot
        \begin{cases} -p^\gamma \log q & q \ge \tau \\ -\beta q^\gamma \log p & q < \tau \end{cases}

    Args:
        logits: ``(N, 1, *)`` or ``(N, C + 1, *)``.
        target: integers ``(N, *)``.
        annotated: booleans ``(N, *)``; left out, ``target > 0``.
        tau: probability of background from which it is believed, in (0, 1).
        beta: weight of the mirrored part.
        alpha: weight of the foreground; background has 1 − α.
        gamma: focal exponent.
        unannotated_weight: w; 0.1 in the authors' configuration, for anchors far from any annotated object.
        reduction: mean, sum or none.

    >>> logits, target = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 0])
    >>> background_recalibration(logits, target, unannotated_weight=1.0, reduction="none")  # a mirror
    tensor([0.0170, 0.0170])
    """
    check_focal(alpha, gamma)
    _check_recalibration(tau, beta, unannotated_weight)
    batch = read_batch(logits, target, annotated)
    logit = label_logit(batch)
    weight = _balance(batch, alpha) * torch.where(batch.annotated, 1.0, unannotated_weight)
    # The label of an unannotated location is background, so this is q < τ.
    doubtful = batch.unannotated & (logit.detach() < threshold_logit(tau))
    losses = weight * torch.where(doubtful, beta * _focal(-logit, gamma), _focal(logit, gamma))
    return reduced(losses, batch.counted, reduction)


def _check_recalibration(tau: float, beta: float, unannotated_weight: float) -> None:
    if not 0.0 < tau < 1.0:
        raise InputError(f"tau is {tau}; give a probability of background between 0 and 1")
    check_not_negative("beta", beta)
    check_not_negative("unannotated_weight", unannotated_weight)


class FocalLoss(Loss):
    """:func:`focal_loss`."""

    def __init__(self, *, alpha: float = 0.25, gamma: float = 2.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_focal(alpha, gamma)
        check_reduction(reduction)
        self.alpha, self.gamma, self.reduction = alpha, gamma, reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return focal_loss(
            call.logits,
            call.target,
            annotated=call.annotated,
            alpha=self.alpha,
            gamma=self.gamma,
            reduction=self.reduction,
        )


class BackgroundRecalibration(Loss):
    """:func:`background_recalibration`."""

    def __init__(
        self,
        *,
        tau: float = 0.5,
        beta: float = 1.0,
        alpha: float = 0.25,
        gamma: float = 2.0,
        unannotated_weight: float = 0.1,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_focal(alpha, gamma)
        _check_recalibration(tau, beta, unannotated_weight)
        check_reduction(reduction)
        self.tau, self.beta, self.alpha, self.gamma = tau, beta, alpha, gamma
        self.unannotated_weight, self.reduction = unannotated_weight, reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return background_recalibration(
            call.logits,
            call.target,
            annotated=call.annotated,
            tau=self.tau,
            beta=self.beta,
            alpha=self.alpha,
            gamma=self.gamma,
            unannotated_weight=self.unannotated_weight,
            reduction=self.reduction,
        )
