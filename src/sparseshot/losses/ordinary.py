"""Cross-entropy with unannotated locations as background, without them, and with the truth about them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.exclusive import exclusive_cross_entropy
from sparseshot.losses.parameters import checked_class_weights
from sparseshot.losses.signature import Call, Loss
from sparseshot.losses.targets import IGNORE_INDEX, Reduction, check_batch, check_reduction


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    annotated: Tensor | None = None,
    class_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy with every unannotated location as background (eq. 1, with the bias of eq. 3).

    It is exclusive cross-entropy that excludes nothing, and equals ``F.binary_cross_entropy_with_logits`` and
    ``F.cross_entropy``.

    >>> cross_entropy(torch.zeros(1, 1), torch.tensor([0]))
    tensor(0.6931)
    """
    return exclusive_cross_entropy(
        logits, target, rho=1.0, annotated=annotated, class_weights=class_weights, reduction=reduction
    )


def annotated_only(
    logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """Cross-entropy over the annotated locations alone; the unannotated are ignored, also by the mean.

    With marks of cells only, all that is left says "foreground", and the model learns to say so everywhere:
    this shows why background is needed, and what certain background is worth.

    >>> annotated_only(torch.zeros(2, 1), torch.tensor([1, 0]), reduction="none")
    tensor([0.6931, 0.0000])
    """
    check_batch(logits, target, annotated)
    certain = target > 0 if annotated is None else annotated
    # int64, because an unsigned target cannot hold -100.
    return cross_entropy(
        logits, torch.where(certain, target.long(), IGNORE_INDEX), annotated=certain, reduction=reduction
    )


def oracle(
    logits: Tensor,
    target: Tensor,
    *,
    truth: Tensor,
    annotated: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy with the truth instead of the target: the upper bound in simulations, where it is known.

    Args:
        logits: as everywhere.
        target: what the other losses see; only its ignored locations count here.
        truth: integers ``(N, *)``, complete.
        annotated: as everywhere; checked, not used.
        reduction: mean, sum or none.

    >>> oracle(torch.zeros(2, 1), torch.tensor([0, 0]), truth=torch.tensor([1, -100]), reduction="none")
    tensor([0.6931, 0.0000])
    """
    check_batch(logits, target, annotated)
    if truth.shape != target.shape:
        raise InputError(
            f"truth has shape {tuple(truth.shape)}, the target {tuple(target.shape)}; give one like it"
        )
    known = torch.where(target == IGNORE_INDEX, IGNORE_INDEX, truth.long())
    return cross_entropy(
        logits, known, annotated=torch.ones_like(known, dtype=torch.bool), reduction=reduction
    )


class CrossEntropy(Loss):
    """:func:`cross_entropy`."""

    class_weights: Tensor | None

    def __init__(
        self, *, class_weights: Sequence[float] | Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction
        self.register_buffer("class_weights", checked_class_weights(class_weights))

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return cross_entropy(
            call.logits,
            call.target,
            annotated=call.annotated,
            class_weights=self.class_weights,
            reduction=self.reduction,
        )


class AnnotatedOnly(Loss):
    """:func:`annotated_only`."""

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return annotated_only(call.logits, call.target, annotated=call.annotated, reduction=self.reduction)


class Oracle(Loss):
    """:func:`oracle`; the truth comes as ``hints=Hints(truth=…)``."""

    wants = frozenset({"truth"})

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        return oracle(
            call.logits,
            call.target,
            truth=call.truth,
            annotated=call.annotated,
            reduction=self.reduction,
        )
