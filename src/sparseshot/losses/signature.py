"""The one signature of all losses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from sparseshot.errors import InputError


@dataclass(frozen=True, eq=False)
class Hints:
    """What some losses are told besides the target; a loop gives what it has, most losses look at none.

    Attributes:
        truth: integers ``(N, *)`` like the target, but complete; known in simulations only.
        teacher_logits: logits of a teacher on the same input, of the shape of the model's.
    """

    truth: Tensor | None = None
    teacher_logits: Tensor | None = None


class Call(NamedTuple):
    """What a loss is called with."""

    logits: Tensor
    target: Tensor
    annotated: Tensor | None
    progress: float
    hints: Hints

    @property
    def truth(self) -> Tensor:
        """The complete target, for a loss that cannot do without."""
        if self.hints.truth is None:
            raise InputError(
                "this loss has to be told the truth; call it with hints=Hints(truth=…), a complete target, "
                "which exists only where marks were left out on purpose"
            )
        return self.hints.truth


class Loss(nn.Module):
    """A loss with its parameters: ``loss(logits, target, annotated=None, progress=1.0, hints=None)``.

    A loss of one's own is a class with :meth:`compute`, and :meth:`left_out` if it excludes. What training
    changes in it belongs into buffers or extra state, so that it is part of ``state_dict()``.
    """

    wants: ClassVar[frozenset[str]] = frozenset()
    """The fields of :class:`Hints` that this loss uses, so that a loop need not compute the others."""

    __call__: Callable[..., Tensor]

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        annotated: Tensor | None = None,
        progress: float = 1.0,
        hints: Hints | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: ``(N, 1, *)`` for one class, ``(N, C + 1, *)`` for C classes and background.
            target: integers ``(N, *)``: 0 background, 1…C classes, -100 ignored.
            annotated: booleans ``(N, *)``: the label is certain here; left out, ``target > 0``.
            progress: the part of training that is done, from 0 to 1.
            hints: what is known besides.
        """
        return self.compute(Call(logits, target, annotated, progress, hints or Hints()))

    def excluded(
        self, logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, progress: float = 1.0
    ) -> Tensor | None:
        """Tell where the loss leaves a location out for what the model says there; None if it never does."""
        return self.left_out(Call(logits.detach(), target, annotated, progress, Hints()))

    def compute(self, call: Call) -> Tensor:
        """Compute the loss."""
        raise NotImplementedError

    def left_out(self, call: Call) -> Tensor | None:
        """Tell what is excluded: booleans ``(N, *)``, or None."""

    def log_values(self) -> dict[str, float]:
        """Tell what the loss has found out by itself, for logs: names and numbers."""
        return {}
