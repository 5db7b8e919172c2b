"""Early-learning regularisation, and the teacher it listens to."""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sparseshot.errors import InputError
from sparseshot.losses.parameters import check_not_negative
from sparseshot.losses.plain import annotated_loss
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import (
    Reduction,
    check_reduction,
    class_log_probabilities,
    read_batch,
    reduced,
    widened,
)

_CERTAINTY = 1e-4
"""How near the teacher may come to 0 and 1, as in the authors' code; else the log has no bottom."""


def early_learning_regularisation(
    logits: Tensor,
    target: Tensor,
    *,
    teacher_logits: Tensor | None = None,
    annotated: Tensor | None = None,
    strength: float = 3.0,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Early-learning regularisation (Liu et al., NeurIPS 2020), unannotated locations as background.

    .. math:: L = \sum -\log p(y) + \lambda \log(1 - \langle q, p \rangle)

    p and q are the probabilities of all classes, by the model and by a teacher who remembers what was learned
    early. Liu et al. average the predictions for each training example. A dense map under random crops has no
    fixed examples; there the teacher is the same network with averaged weights, :class:`EmaTeacher`.

    Args:
        logits: ``(N, 1, *)`` or ``(N, C + 1, *)``.
        target: integers ``(N, *)``.
        teacher_logits: of the shape of ``logits``; carries no gradient. Left out, the model is its own
            teacher, an average without memory.
        annotated: booleans ``(N, *)``; left out, ``target > 0``.
        strength: λ.
        reduction: mean, sum or none.

    >>> logits, target = torch.tensor([[2.0]]), torch.tensor([0])
    >>> early_learning_regularisation(logits, target, strength=0.0)
    tensor(2.1269)
    >>> early_learning_regularisation(logits, target, teacher_logits=logits, strength=1.0)
    tensor(0.5662)
    """
    check_not_negative("strength", strength)
    batch = read_batch(logits, target, annotated)
    if teacher_logits is None:
        teacher_logits = logits
    elif teacher_logits.shape != logits.shape:
        raise InputError(
            f"teacher_logits have shape {tuple(teacher_logits.shape)}, the logits {tuple(logits.shape)}; "
            "ask the teacher about the same input"
        )
    teacher = (
        class_log_probabilities(widened(teacher_logits.detach())).exp().clamp(_CERTAINTY, 1.0 - _CERTAINTY)
    )
    # 1 − ⟨q, p⟩ = Σ p (1 − q), in log space because both may be nearly 0.
    disagreement = (class_log_probabilities(batch.logits) + torch.log1p(-teacher)).logsumexp(1)
    return reduced(annotated_loss(batch) + strength * disagreement, batch.counted, reduction)


class EarlyLearningRegularisation(Loss):
    """:func:`early_learning_regularisation`; the teacher speaks by ``Hints(teacher_logits=…)``."""

    wants = frozenset({"teacher_logits"})

    def __init__(self, *, strength: float = 3.0, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_not_negative("strength", strength)
        check_reduction(reduction)
        self.strength, self.reduction = strength, reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return early_learning_regularisation(
            call.logits,
            call.target,
            teacher_logits=call.hints.teacher_logits,
            annotated=call.annotated,
            strength=self.strength,
            reduction=self.reduction,
        )


class EmaTeacher(nn.Module):
    """A copy of a model whose weights are the running average of the model's.

    ``update`` it after each optimiser step. Its ``state_dict`` belongs into the checkpoint. Running
    statistics of normalisation layers are taken over from the model, not averaged.

    >>> model = nn.Linear(2, 1)
    >>> teacher = EmaTeacher(model, decay=0.9)
    >>> teacher.update(model)
    >>> torch.equal(teacher(torch.ones(1, 2)), model(torch.ones(1, 2)).detach())
    True
    """

    def __init__(self, model: nn.Module, *, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise InputError(f"decay is {decay}; give the part that stays at each step, from 0 to below 1")
        self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
        self.averaged.requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the model's weights into the average."""
        self.averaged.update_parameters(model)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the teacher's logits, as in evaluation."""
        self.averaged.eval()
        logits: Tensor = self.averaged(images)
        return logits
