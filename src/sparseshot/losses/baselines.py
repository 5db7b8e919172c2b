"""Baselines: cross-entropy in three settings, focal loss, background recalibration, and Huber loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.losses.base import Loss
from sparseshot.losses.exclusive import Terms, exclusive_losses, weights_of
from sparseshot.losses.locations import Locations, class_log_probabilities, label_logit
from sparseshot.losses.schedules import INSIDE, NOT_NEGATIVE, POSITIVE, SHARE_OR_ZERO, class_weight_tensor
from sparseshot.losses.threshold import threshold_logit


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEntropy(Loss):
    """Cross-entropy with every unannotated location as background (eq. 1, with the bias of eq. 3).

    It is exclusive cross-entropy that excludes nothing, and equals ``F.binary_cross_entropy_with_logits`` and
    ``F.cross_entropy``.

    Args:
        class_weights: C + 1 weights, background first.

    >>> CrossEntropy()(torch.zeros(1, 1), torch.tensor([0]))
    tensor(0.6931)
    """

    class_weights: Sequence[float] | Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("class_weight", class_weight_tensor(self.class_weights), persistent=False)

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        return exclusive_losses(locations, Terms())

    def weights(self, locations: Locations) -> Tensor | None:
        """Return the weights by class."""
        return weights_of(locations, cast(Tensor | None, self.class_weight))


@dataclass(eq=False, repr=False, kw_only=True)
class AnnotatedOnly(Loss):
    """Cross-entropy over the annotated locations alone; unannotated ones are ignored, by the mean too.

    With marks of cells only, every label is foreground, and the model learns to predict it everywhere. This
    loss shows why background is needed, and what certain background is worth.

    >>> AnnotatedOnly(reduction="none")(torch.zeros(2, 1), torch.tensor([1, 0]))
    tensor([0.6931, 0.0000])
    """

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        return exclusive_losses(locations, Terms())

    def weights(self, locations: Locations) -> Tensor:
        """Return where the label is certain."""
        return locations.annotated


@dataclass(eq=False, repr=False, kw_only=True)
class Oracle(Loss):
    """Cross-entropy with ``hints=Hints(truth=…)`` as target: the upper bound in simulations.

    Of the target itself, only the ignored locations count.

    >>> from sparseshot.losses import Hints
    >>> hints = Hints(truth=torch.tensor([1, -100]))
    >>> Oracle(reduction="none")(torch.zeros(2, 1), torch.tensor([0, 0]), hints=hints)
    tensor([0.6931, 0.0000])
    """

    wants = frozenset({"truth"})

    def reduced(self, locations: Locations) -> Tensor:
        """Return the loss with the ground truth as target."""
        truth = locations.truth().long()
        if locations.ignored is not None:
            truth = truth.masked_fill(locations.ignored, self.ignore_index)
        everywhere = torch.ones_like(truth, dtype=torch.bool)
        return super().reduced(Locations(locations.logits, truth, everywhere, ignore_index=self.ignore_index))

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        return exclusive_losses(locations, Terms())


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

    def losses(self, locations: Locations) -> Tensor:
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

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        logit = label_logit(locations)
        weight = self._balance(locations) * torch.where(locations.annotated, 1.0, self.unannotated_weight)
        # The label of an unannotated location is background, so this is q < τ.
        doubtful = locations.unannotated & (logit.detach() < threshold_logit(self.tau))
        return weight * torch.where(doubtful, self.beta * self._focal(-logit), self._focal(logit))


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

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        if locations.logits.shape[1] == 1:  # both halves of the sum are equal
            p = locations.logits[:, 0].sigmoid()
            return F.huber_loss(p, locations.label.to(p.dtype), reduction="none", delta=self.delta)
        p = class_log_probabilities(locations.logits).exp()
        label = torch.zeros_like(p).scatter(1, locations.label.unsqueeze(1), 1.0)
        return F.huber_loss(p, label, reduction="none", delta=self.delta).sum(1) / 2
