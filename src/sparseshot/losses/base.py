"""The base class of all losses."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sparseshot.errors import TrainingWarning
from sparseshot.losses.locations import IGNORE_INDEX, Hints, Locations, Reduction, reduce
from sparseshot.losses.schedules import check_fields


@dataclass(eq=False, repr=False, kw_only=True)
class Loss(nn.Module):
    """A loss with its parameters: ``loss(logits, target, annotated=None, progress=0.3, hints=None)``.

    A new loss is a dataclass with its parameters as fields, whose types state their ranges, and one method,
    :meth:`losses`. State that changes in training belongs in buffers or extra state, so that it is part of
    ``state_dict()``.

    Attributes:
        reduction: ``mean`` over all locations that are not ignored, ``sum``, or ``none`` for the losses
            ``(N, *)``.
        ignore_index: value of the target at locations to ignore.
    """

    reduction: Reduction = "mean"
    ignore_index: int = IGNORE_INDEX

    wants = frozenset[str]()
    """The fields of :class:`Hints` that this loss uses, so that a loop need not compute the others."""

    teacher_from: ClassVar[float] = 0.0
    """The part of training after which a loss that wants ``teacher_logits`` uses them."""

    teacher_decay: ClassVar[float] = 0.99
    """Part of the teacher's weights that is kept at each step."""

    built_for: ClassVar[float | None] = None
    """The threshold that predictions of this loss are made for; None if it depends on the marks."""

    estimates = False
    """Whether the loss estimates something from the values of a batch, which cannot be compiled."""

    changes_with_progress = False
    """Whether the loss depends on the progress of training."""

    if TYPE_CHECKING:
        __call__: Callable[..., Tensor] = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        check_fields(self)
        self._warned: set[str] = set()

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        annotated: Tensor | None = None,
        progress: float | None = None,
        hints: Hints | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: ``(N, 1, *)`` for one class, ``(N, C + 1, *)`` for C classes and background.
            target: integers ``(N, *)``: 0 background, 1…C classes, ``ignore_index`` ignored.
            annotated: booleans ``(N, *)``: the label is certain here. The default is ``target > 0``.
            progress: the part of training that is done, from 0 to 1. Without it, 1; a loss that changes with
                it then warns in training.
            hints: further knowledge of the batch.
        """
        given, progress = progress is not None, 1.0 if progress is None else progress
        locations = Locations(
            logits, target, annotated, progress=progress, hints=hints, ignore_index=self.ignore_index
        )
        if not given and self.changes_with_progress and self.training and logits.requires_grad:
            self.warn_once(
                "progress",
                f"{type(self).__name__} is trained without progress, so every step counts as the last one; "
                "call it with progress=step / steps",
            )
        if self.estimates and torch.compiler.is_compiling():
            return torch.compiler.disable(self.reduced)(locations)  # type: ignore[no-any-return, no-untyped-call]
        return self.reduced(locations)

    def losses(self, locations: Locations) -> Tensor:
        """Return the loss of each location, ``(N, *)``; ignored locations may have any value."""
        raise NotImplementedError

    def weights(self, locations: Locations) -> Tensor | None:
        """Return the weight of each location in the mean, ``(N, *)``; None if all are equal."""
        return None if locations.ignored is None else ~locations.ignored

    def reduced(self, locations: Locations) -> Tensor:
        """Return the losses, weighted and reduced."""
        return reduce(self.losses(locations), self.weights(locations), self.reduction)

    def exclusion_mask(
        self, logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, progress: float = 1.0
    ) -> Tensor | None:
        """Return where the model's confidence excludes a location, ``(N, *)``; None for a loss without."""

    def log_values(self) -> dict[str, float]:
        """Return what the loss has estimated, by name, for logs."""
        return {}

    def warn_once(self, kind: str, message: str) -> None:
        """Issue a warning unless this loss has issued one of this kind."""
        if kind not in self._warned and not torch.compiler.is_compiling():
            self._warned.add(kind)
            warnings.warn(message, TrainingWarning, stacklevel=2)

    def extra_repr(self) -> str:
        """Return the parameters that differ from their defaults."""
        changed = [item.name for item in fields(self) if getattr(self, item.name) != item.default]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
