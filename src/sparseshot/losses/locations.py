"""The arguments of a loss: checked once, and split into the maps that every loss is written in."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses.schedules import SHARE_OR_ZERO

IGNORE_INDEX = -100
Reduction = Literal["mean", "sum", "none"]
TARGET_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@dataclass(frozen=True, eq=False)
class Hints:
    """Further knowledge of a batch, which some losses use and most do not.

    Attributes:
        truth: integers ``(N, *)`` like the target, but complete; known in simulations only.
        centres: booleans ``(N, *)``, where a mark covers several locations of a detector's grid: the one in
            which it lies.
        exhaustive: booleans ``(N, *)``, inside regions in which every cell is marked. There marks say nothing
            of the share that is marked elsewhere.
        teacher_logits: logits of a teacher on the same input, of the shape of the model's.
    """

    truth: Tensor | None = None
    centres: Tensor | None = None
    exhaustive: Tensor | None = None
    teacher_logits: Tensor | None = None


class Locations:
    """The locations of one call of a loss: checked, and split into annotated, unannotated and ignored ones.

    A class that the logits do not have raises on the CPU. Where reading values would stall a GPU or break a
    compiled graph, it makes the loss NaN.

    Attributes:
        logits: ``(N, 1, *)`` or ``(N, C + 1, *)``, widened to float32 unless they are float64.
        target: integers ``(N, *)``, as given.
        ignored: booleans ``(N, *)``: neither annotated nor unannotated. None if nothing is ignored.
        annotated: booleans ``(N, *)``.
        unannotated: booleans ``(N, *)``.
        foreground: booleans ``(N, *)``: annotated with a class.
        progress: the part of training that is done, from 0 to 1.
        hints: further knowledge.
        ignore_index: value of the target at ignored locations.

    >>> locations = Locations(torch.zeros(1, 1, 4), torch.tensor([[0, 1, -100, 0]]))
    >>> locations.annotated.tolist(), locations.unannotated.tolist()
    ([[False, True, False, False]], [[True, False, False, True]])
    """

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        annotated: Tensor | None = None,
        *,
        progress: float = 1.0,
        hints: Hints | None = None,
        ignore_index: int = IGNORE_INDEX,
    ) -> None:
        _check(logits, target, annotated, ignore_index)
        SHARE_OR_ZERO.check("progress", progress)
        self.logits, self.target = widened(logits), target
        self.progress, self.hints, self.ignore_index = progress, hints or Hints(), ignore_index
        self.ignored = self._find_ignored()
        marked = target > 0
        self.annotated = marked if annotated is None else annotated
        if self.ignored is not None:
            self.annotated = self.annotated & ~self.ignored
        self.unannotated = ~self.annotated if self.ignored is None else ~(self.annotated | self.ignored)
        self.foreground = self.annotated if annotated is None else self.annotated & marked

    def _find_ignored(self) -> Tensor | None:
        """Return what is ignored; raise for a wrong class, or set its logits to NaN."""
        classes, readable = number_of_classes(self.logits), values_can_be_read(self.logits)
        if readable and (self.target.numel() == 0 or _is_within(self.target, classes)):
            return None
        y = self.target.long()  # an unsigned target would wrap -100 to 156
        ignored = y == self.ignore_index
        wrong = ((y < 0) | (y > classes)) & ~ignored
        if not readable:
            self.logits = torch.where(wrong.unsqueeze(1), torch.nan, self.logits)
        elif wrong.any():
            self._raise_wrong_class(tuple(wrong.nonzero()[0].tolist()))
        return ignored

    @property
    def counted(self) -> Tensor:
        """Everything that is not ignored: the locations that the mean is taken over."""
        return self.annotated | self.unannotated

    @property
    def label(self) -> Tensor:
        """int64 ``(N, *)``: the class where annotated, 0 elsewhere."""
        return torch.where(self.foreground, self.target, 0).long().clamp_(0, number_of_classes(self.logits))

    @cached_property
    def likeliest(self) -> Tensor:
        """int32 ``(N, *)``: the number of the likeliest class, from 0."""
        # Channel by channel: torch.argmax over channels takes ten times as long on the CPU.
        classes = self.logits.detach().unbind(1)[-number_of_classes(self.logits) :]
        highest, number = classes[0], torch.zeros_like(self.target, dtype=torch.int32)
        for c, logit in enumerate(classes[1:], 1):
            number = torch.where(logit > highest, c, number)
            highest = torch.maximum(highest, logit)
        return number

    def truth(self) -> Tensor:
        """Return the complete target, for a loss that needs it."""
        truth = self._hint("truth", like="target", cure="give one of the same shape")
        if truth is None:
            raise InputError(
                "this loss needs the ground truth; call it with hints=Hints(truth=…), a complete target, "
                "which exists only where marks were left out on purpose"
            )
        return truth

    def teacher_logits(self) -> Tensor | None:
        """Return the logits of the teacher, widened and without gradient; None if there are none."""
        logits = self._hint("teacher_logits", like="logits", cure="run the teacher on the same input")
        return None if logits is None else widened(logits.detach())

    def _hint(self, name: str, *, like: str, cure: str) -> Tensor | None:
        hint, wanted = getattr(self.hints, name), tuple(getattr(self, like).shape)
        if hint is not None and hint.shape != wanted:
            raise InputError(f"{name} has shape {tuple(hint.shape)}, the {like} {wanted}; {cure}")
        return hint  # type: ignore[no-any-return]  # of any hint

    def _raise_wrong_class(self, place: tuple[int, ...]) -> None:
        classes = number_of_classes(self.logits)
        known = "0 (background) and 1" if classes == 1 else f"0 (background) and 1…{classes}"
        raise InputError(
            f"target is {int(self.target[place])} at {place}, but logits with {self.logits.shape[1]} "
            f"channel(s) have only {known}; use {self.ignore_index} for locations to ignore (or set "
            "ignore_index), or a model with more channels"
        )


def _is_within(target: Tensor, classes: int) -> bool:
    """Return whether all values are background or known classes, in one pass over memory."""
    lowest, highest = target.aminmax()
    return int(lowest) >= 0 and int(highest) <= classes


def _check(logits: Any, target: Any, annotated: Any, ignore_index: int) -> None:
    """Raise unless types, shapes and devices fit."""
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, Tensor):
            cure = "; the logits are often its .logits or ['out']" if name == "logits" else ""
            raise InputError(f"{name} is of type {type(value).__name__}, not a tensor{cure}")
    if not logits.is_floating_point():
        raise InputError(f"logits are {logits.dtype}; give the floats that come out of the model")
    expected = (*logits.shape[:1], *logits.shape[2:])
    if logits.ndim < 2 or logits.shape[1] < 1 or target.shape != expected:
        raise InputError(
            f"logits have shape {tuple(logits.shape)} and the target {tuple(target.shape)}; "
            + _cure_of_shapes(logits, target)
        )
    if target.dtype not in TARGET_TYPES:
        soft = values_can_be_read(target) and target.is_floating_point() and bool((target % 1 != 0).any())
        raise InputError(
            f"target is {target.dtype}; "
            + (
                "soft labels cannot be used, for a mark is certain or absent: give (target > 0.5).long(), "
                "and annotated=… without the doubtful ones"
                if soft
                else f"give integers (target.long()): 0 background, 1…C classes, {ignore_index} ignored"
            )
        )
    if 0 <= ignore_index <= number_of_classes(logits) or abs(ignore_index) >= 2**24:
        raise InputError(
            f"ignore_index is {ignore_index}; give a number that is no class, such as -100 or 255"
        )
    if annotated is not None:
        if annotated.dtype is not torch.bool:
            raise InputError(f"annotated is {annotated.dtype}; give booleans (annotated.bool())")
        if annotated.shape != target.shape:
            raise InputError(
                f"annotated has shape {tuple(annotated.shape)}, the target {tuple(target.shape)}; give one "
                "boolean for each location"
            )
    for name, tensor in (("target", target), ("annotated", annotated)):
        if tensor is not None and tensor.device != logits.device:
            raise InputError(
                f"{name} is on {tensor.device}, the logits on {logits.device}; use {name}.to(logits.device)"
            )


def _cure_of_shapes(logits: Tensor, target: Tensor) -> str:
    if target.ndim == logits.ndim > 1 and target.shape[1] == 1:
        return "drop the channel of the target: target.squeeze(1)"
    if logits.ndim < 2 or logits.shape == target.shape:
        without = "if the logits have no channel axis, add it: logits.unsqueeze(1)"
        if logits.ndim < 2:
            return without
        return (
            f"{without}; if the target is one-hot, give target.argmax(1); if a location can have several "
            "classes, call the loss for each: loss(logits[:, c : c + 1], target[:, c].long())"
        )
    if logits.shape[:-1] == target.shape:
        return "if the channels are last, move them: logits.movedim(-1, 1)"
    return "give logits (N, 1, *) for one class, (N, C + 1, *) for C classes and background; target (N, *)"


def number_of_classes(logits: Tensor) -> int:
    """Return C, the number of classes besides background."""
    return max(logits.shape[1] - 1, 1)


def values_can_be_read(tensor: Tensor) -> bool:
    """Return whether reading a value neither stalls a GPU nor breaks a compiled graph."""
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu"


def widened(logits: Tensor) -> Tensor:
    """Return logits in float32 or float64, never in half precision."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def foreground_logit(logits: Tensor) -> Tensor:
    """Return the logit of p, the probability of any foreground, ``(N, *)``.

    With one logit it is that logit. With C + 1 it is log Σ exp z over the classes minus the logit of
    background, since the sigmoid of this is 1 − softmax(z)₀.

    >>> foreground_logit(torch.tensor([[0.0, 2.0]])), foreground_logit(torch.tensor([[2.0]]))
    (tensor([2.]), tensor([2.]))
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[:, 1:].logsumexp(1) - logits[:, 0]


def label_logit(locations: Locations) -> Tensor:
    """Return the logit of p(y), the probability of the location's label against all others, ``(N, *)``.

    log p(y) is log σ of it and log(1 − p(y)) is log σ of its negative, both accurate near 0 and 1.

    >>> label_logit(Locations(torch.tensor([[2.0], [2.0]]), torch.tensor([1, 0])))
    tensor([ 2., -2.])
    """
    logits, label = locations.logits, locations.label
    if logits.shape[1] == 1:
        return torch.where(label > 0, logits[:, 0], -logits[:, 0])
    others = logits.scatter(1, label.unsqueeze(1), -torch.inf)
    return logits.gather(1, label.unsqueeze(1))[:, 0] - others.logsumexp(1)


def label_loss(locations: Locations) -> Tensor:
    """Return −log p(y) at every location, with y = 0 where not annotated."""
    logits, label = locations.logits, locations.label
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], label.to(logits.dtype), reduction="none")
    return F.cross_entropy(logits, label, reduction="none")


def class_log_probabilities(logits: Tensor) -> Tensor:
    """Return log p of background and each class, ``(N, C + 1, *)``, also from one logit."""
    if logits.shape[1] == 1:
        return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], 1)
    return F.log_softmax(logits, 1)


def reduce(losses: Tensor, weights: Tensor | None, reduction: Reduction) -> Tensor:
    """Reduce losses ``(N, *)`` as ``F.cross_entropy`` does.

    A loss without weight is 0. The mean is Σ wᵢ·lossᵢ / Σ wᵢ, and 0, not NaN, where all weights are 0.

    Args:
        losses: of each location.
        weights: floats or booleans ``(N, *)``; None if all are equal.
        reduction: ``mean``, ``sum`` or ``none``.
    """
    if weights is not None:
        weighted = losses if weights.dtype is torch.bool else losses * weights
        losses = torch.where(weights > 0, weighted, 0.0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if weights is None:
        return losses.sum() / max(losses.numel(), 1)
    total = weights.sum()
    return losses.sum() / torch.where(total > 0, total, 1.0)
