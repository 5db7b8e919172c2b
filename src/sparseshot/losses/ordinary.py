"""Cross-entropy: unannotated locations as background, without them, and with their ground truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from sparseshot.losses.exclusive import compute
from sparseshot.losses.locations import Call
from sparseshot.losses.parameters import class_weight_tensor
from sparseshot.losses.plain import Terms
from sparseshot.losses.signature import Loss


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
        self.register_buffer("weights", class_weight_tensor(self.class_weights), persistent=False)

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss."""
        terms = Terms(class_weights=cast(Tensor | None, self.weights))
        return compute(call, terms, self.reduction)


@dataclass(eq=False, repr=False, kw_only=True)
class AnnotatedOnly(Loss):
    """Cross-entropy over the annotated locations alone; unannotated ones are ignored, by the mean too.

    With marks of cells only, every label is foreground, and the model learns to predict it everywhere. This
    loss shows why background is needed, and what certain background is worth.

    >>> AnnotatedOnly(reduction="none")(torch.zeros(2, 1), torch.tensor([1, 0]))
    tensor([0.6931, 0.0000])
    """

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss."""
        certain = call.target > 0 if call.annotated is None else call.annotated
        # int64, because an unsigned target cannot hold -100.
        target = torch.where(certain, call.target.long(), call.ignore_index)
        only = Call(call.logits, target, certain, ignore_index=call.ignore_index)
        return compute(only, Terms(), self.reduction)


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

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss."""
        truth = torch.where(call.target.long() == call.ignore_index, call.ignore_index, call.truth().long())
        everywhere = torch.ones_like(truth, dtype=torch.bool)
        known = Call(call.logits, truth, everywhere, ignore_index=call.ignore_index)
        return compute(known, Terms(), self.reduction)
