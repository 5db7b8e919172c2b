"""Losses that learn from a teacher, and the teacher."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sparseshot.errors import InputError
from sparseshot.losses.base import Loss
from sparseshot.losses.locations import Locations, class_log_probabilities, label_loss
from sparseshot.losses.schedules import INSIDE, NOT_NEGATIVE, POSITIVE

_CLOSEST = 1e-4
"""Least distance of the teacher's probabilities from 0 and 1, as in the authors' code; it bounds the log."""


@dataclass(eq=False, repr=False, kw_only=True)
class EarlyLearningRegularisation(Loss):
    r"""Early-learning regularisation (Liu et al., NeurIPS 2020), unannotated locations as background.

    .. math:: L = \sum -\log p(y) + \lambda \log(1 - \langle q, p \rangle)

    p and q are the probabilities of all classes by the model and by a teacher that remembers what was learned
    early, given as ``Hints(teacher_logits=…)``. Liu et al. average the predictions for each training example.
    A dense map under random crops has no fixed examples, so here the teacher is the network with averaged
    weights, :class:`EmaTeacher`. Without teacher logits, the model is its own teacher, without memory.

    Args:
        strength: λ.

    >>> logits, target = torch.tensor([[2.0]]), torch.tensor([0])
    >>> EarlyLearningRegularisation(strength=0.0)(logits, target)
    tensor(2.1269)
    >>> EarlyLearningRegularisation(strength=1.0)(logits, target)
    tensor(0.5662)
    """

    strength: Annotated[float, NOT_NEGATIVE] = 3.0

    wants = frozenset({"teacher_logits"})

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        advice = locations.teacher_logits()
        advice = locations.logits.detach() if advice is None else advice
        teacher = class_log_probabilities(advice).exp().clamp(_CLOSEST, 1.0 - _CLOSEST)
        # 1 − ⟨q, p⟩ = Σ p (1 − q), in log space because both may be nearly 0.
        disagreement = (class_log_probabilities(locations.logits) + torch.log1p(-teacher)).logsumexp(1)
        return label_loss(locations) + self.strength * disagreement


@dataclass(eq=False, repr=False, kw_only=True)
class Distillation(Loss):
    r"""Cross-entropy to the labels where they are certain, and to a teacher's probabilities elsewhere.

    .. math:: L = -\lambda \sum_F \log p(y) - \sum_{\bar F} \sum_c q_c \log p_c

    The teacher, given as ``Hints(teacher_logits=…)``, is the model as it was before the first mark (learning
    without forgetting, Li & Hoiem, ECCV 2016). So an unmarked cell that it knows stays a cell, and marks
    change only what it gets wrong. This is for a start that finds most of the marks already; other models
    have nothing to hold on to. Without teacher logits, unannotated locations teach nothing.

    Args:
        emphasis: λ, the weight of an annotated location.
        threshold: the teacher's, which predictions of this loss are made for.

    >>> from sparseshot.losses import Hints
    >>> logits, target = torch.zeros(2, 1, requires_grad=True), torch.tensor([1, 0])
    >>> hints = Hints(teacher_logits=torch.full((2, 1), 9.0))
    >>> Distillation()(logits, target, hints=hints).backward()
    >>> logits.grad[:, 0] < 0  # both rise: one is marked, the teacher knows the other
    tensor([True, True])
    """

    emphasis: Annotated[float, POSITIVE] = 4.0
    threshold: Annotated[float, INSIDE] = 0.5

    wants = frozenset({"teacher_logits"})
    teacher_decay = 1.0

    @property
    def built_for(self) -> float | None:  # type: ignore[override]  # depends on the parameters
        """The threshold of the teacher."""
        return self.threshold

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location."""
        advice = locations.teacher_logits()
        advice = locations.logits.detach() if advice is None else advice
        known = class_log_probabilities(advice).exp()
        held = -(known * class_log_probabilities(locations.logits)).sum(1)
        return torch.where(locations.annotated, self.emphasis * label_loss(locations), held)


class EmaTeacher(nn.Module):
    """A copy of a model whose weights are a running average of the model's; a decay of 1 freezes it.

    Call ``update`` after each optimiser step, and keep its ``state_dict`` in the checkpoint. Running
    statistics of normalisation layers are copied from the model, not averaged.

    >>> model = nn.Linear(2, 1)
    >>> teacher = EmaTeacher(model, decay=0.9)
    >>> teacher.update(model)
    >>> torch.equal(teacher(torch.ones(1, 2)), model(torch.ones(1, 2)).detach())
    True
    """

    def __init__(self, model: nn.Module, *, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 <= decay <= 1.0:
            raise InputError(f"decay is {decay}; give the part kept at each step, from 0 to 1")
        self.frozen = decay == 1.0
        self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
        self.averaged.requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the model's weights to the average."""
        if not self.frozen:
            self.averaged.update_parameters(model)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the teacher's logits, in evaluation mode."""
        self.averaged.eval()
        logits: Tensor = self.averaged(images)
        return logits
