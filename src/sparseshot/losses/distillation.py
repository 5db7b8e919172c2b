"""Learning from marks without forgetting what a model knew before."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from sparseshot.losses.base import Loss
from sparseshot.losses.locations import Locations, class_log_probabilities, label_loss
from sparseshot.losses.parameters import INSIDE, POSITIVE


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
