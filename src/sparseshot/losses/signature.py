"""The one signature of all losses."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sparseshot.losses.locations import IGNORE_INDEX, Call, Hints, Locations, Reduction, reduce
from sparseshot.losses.parameters import check_fields


@dataclass(eq=False, repr=False, kw_only=True)
class Loss(nn.Module):
    """A loss with its parameters: ``loss(logits, target, annotated=None, progress=1.0, hints=None)``.

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

    wants: ClassVar[frozenset[str]] = frozenset()
    """The fields of :class:`Hints` that this loss uses, so that a loop need not compute the others."""

    teacher_decay: ClassVar[float] = 0.99
    """Part of the teacher's weights that is kept at each step, by a loss that wants one."""

    if TYPE_CHECKING:
        __call__: Callable[..., Tensor] = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        check_fields(self)

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
            target: integers ``(N, *)``: 0 background, 1…C classes, ``ignore_index`` ignored.
            annotated: booleans ``(N, *)``: the label is certain here. The default is ``target > 0``.
            progress: the part of training that is done, from 0 to 1.
            hints: further knowledge of the batch.
        """
        call = Call(logits, target, annotated, progress=progress, hints=hints, ignore_index=self.ignore_index)
        if self.estimates and torch.compiler.is_compiling():
            from sparseshot.losses.uncompiled import reduced  # noqa: PLC0415  it loads torch.compile, which few need

            return reduced(self, call)
        return self.reduced(call)

    def reduced(self, call: Call) -> Tensor:
        """Compute the loss of a call; overridden where losses and their reduction are one fused pass."""
        locations = call.read()
        return reduce(self.losses(locations, call), locations.counted, self.reduction)

    @property
    def estimates(self) -> bool:
        """Whether the loss estimates something from the values of a batch, which cannot be compiled."""
        return False

    @property
    def built_for(self) -> float | None:
        """The threshold that predictions of this loss are made for; None if it depends on the marks."""
        return None

    def wanted(self, progress: float) -> frozenset[str]:  # noqa: ARG002  for those that want them later
        """Return which of :attr:`wants` the loss uses at this part of training."""
        return self.wants

    def fine_tuned(self, *, areas: bool) -> dict[str, float]:  # noqa: ARG002  for those with a teacher
        """Return the options with which to learn from a model that knows cells, such as a starter.

        Args:
            areas: marks are areas, not points.
        """
        return {}

    def continued(self, marked_share: float | None) -> dict[str, float]:  # noqa: ARG002  for those that estimate
        """Return the options with which to continue a model that was trained with this loss.

        Args:
            marked_share: the share of the cells that was marked, as estimated then; None if unknown.
        """
        return {}

    def losses(self, locations: Locations, call: Call) -> Tensor:
        """Return the loss of each location, ``(N, *)``; ignored locations may have any value."""
        raise NotImplementedError

    def exclusion_mask(
        self, logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, progress: float = 1.0
    ) -> Tensor | None:
        """Return where the model's confidence excludes a location, ``(N, *)``; None for a loss without."""

    def log_values(self) -> dict[str, float]:
        """Return what the loss has estimated, by name, for logs."""
        return {}

    def extra_repr(self) -> str:
        """Return the parameters that differ from their defaults."""
        changed = [item.name for item in fields(self) if getattr(self, item.name) != item.default]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
