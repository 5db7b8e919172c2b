"""What a batch says of each location: checked, and split into the parts that every loss is written in."""

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from sparseshot.errors import InputError

IGNORE_INDEX = -100
Reduction = Literal["mean", "sum", "none"]
TARGET_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class Batch(NamedTuple):
    """One batch, read. All maps are ``(N, *)``; ignored locations are neither annotated nor unannotated."""

    logits: Tensor
    """``(N, 1, *)`` or ``(N, C + 1, *)`` in float32 or float64."""
    label: Tensor
    """int64: the class where annotated, 0 elsewhere."""
    annotated: Tensor
    unannotated: Tensor

    @property
    def counted(self) -> Tensor:
        """What the mean goes over: everything that is not ignored."""
        return self.annotated | self.unannotated


def check_batch(logits: Tensor, target: Tensor, annotated: Tensor | None) -> None:
    """Raise unless shapes, types and devices fit. Looks at no value, so it costs nothing."""
    if not logits.is_floating_point():
        raise InputError(f"logits are {logits.dtype}; give the floats that come out of the model")
    if logits.ndim < 2 or logits.shape[1] < 1:
        raise InputError(
            f"logits have shape {tuple(logits.shape)}; give (N, 1, *) for one class, "
            "(N, C + 1, *) for C classes and background"
        )
    if target.dtype not in TARGET_TYPES:
        raise InputError(
            f"target is {target.dtype}; give integers (target.long()): "
            "0 background, 1…C classes, -100 ignored"
        )
    expected = (logits.shape[0], *logits.shape[2:])
    if tuple(target.shape) != expected:
        cure = "drop the channel: target.squeeze(1)" if target.ndim == logits.ndim else f"give {expected}"
        raise InputError(
            f"target has shape {tuple(target.shape)}, but logits of {tuple(logits.shape)} need {expected}; "
            f"{cure}"
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


def check_reduction(reduction: str) -> None:
    """Raise unless ``reduction`` is known."""
    if reduction not in get_args(Reduction):
        raise InputError(f"reduction is {reduction!r}; choose mean, sum or none")


def number_of_classes(logits: Tensor) -> int:
    """Return C, the number of classes besides background."""
    return max(logits.shape[1] - 1, 1)


def wrong_classes(logits: Tensor, target: Tensor) -> Tensor:
    """Tell where ``target`` is neither 0…C nor -100."""
    return (target > number_of_classes(logits)) | ((target < 0) & (target != IGNORE_INDEX))


def raise_wrong_classes(logits: Tensor, target: Tensor) -> None:
    """Raise for the first value of ``target`` that is no class."""
    place = tuple(wrong_classes(logits, target).nonzero()[0].tolist())
    classes = number_of_classes(logits)
    known = "0 (background) and 1" if classes == 1 else f"0 (background) and 1…{classes}"
    raise InputError(
        f"target is {int(target[place])} at {place}, but logits with {logits.shape[1]} channel(s) know only "
        f"{known}; use -100 for locations to ignore, or a model with more channels"
    )


def values_can_be_read(tensor: Tensor) -> bool:
    """Tell whether looking at a value neither stalls a GPU nor breaks a compiled graph."""
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu"


def widened(logits: Tensor) -> Tensor:
    """Return logits in float32 or float64, never in half precision."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def read_batch(logits: Tensor, target: Tensor, annotated: Tensor | None) -> Batch:
    """Check a batch and split it.

    A class that the logits do not know raises on the CPU. Where that would mean waiting for a GPU or breaking
    a compiled graph, it makes the loss NaN instead, which is seen as well.

    >>> batch = read_batch(torch.zeros(1, 1, 4), torch.tensor([[0, 1, -100, 0]]), None)
    >>> batch.annotated.tolist(), batch.unannotated.tolist()
    ([[False, True, False, False]], [[True, False, False, True]])
    """
    check_batch(logits, target, annotated)
    logits, wrong = widened(logits), wrong_classes(logits, target)
    if not values_can_be_read(logits):
        logits = torch.where(wrong.unsqueeze(1), torch.nan, logits)
    elif wrong.any():
        raise_wrong_classes(logits, target)
    ignored = target == IGNORE_INDEX
    certain = (target > 0 if annotated is None else annotated) & ~ignored
    label = torch.where(certain, target, 0).long().clamp(0, number_of_classes(logits))
    return Batch(logits, label, annotated=certain, unannotated=~certain & ~ignored)


def foreground_logit(logits: Tensor) -> Tensor:
    """Return the logit of p, the probability of any foreground, ``(N, *)``.

    With one logit it is that logit; with C + 1 it is log Σ exp z over the classes minus the background's z,
    since σ of this is 1 − softmax(z)₀. Whatever asks only for foreground or background is written in this one
    number.

    >>> foreground_logit(torch.tensor([[0.0, 2.0]])), foreground_logit(torch.tensor([[2.0]]))
    (tensor([2.]), tensor([2.]))
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[:, 1:].logsumexp(1) - logits[:, 0]


def label_logit(batch: Batch) -> Tensor:
    """Return the logit of p(y), the probability of the location's label against all the rest, ``(N, *)``.

    So log p(y) = log σ of it and log(1 − p(y)) = log σ of its negative, both without loss near 0 and 1.

    >>> label_logit(read_batch(torch.tensor([[2.0], [2.0]]), torch.tensor([1, 0]), None))
    tensor([ 2., -2.])
    """
    if batch.logits.shape[1] == 1:
        return torch.where(batch.label > 0, batch.logits[:, 0], -batch.logits[:, 0])
    label = batch.label.unsqueeze(1)
    rest = batch.logits.scatter(1, label, -torch.inf)
    return batch.logits.gather(1, label)[:, 0] - rest.logsumexp(1)


def class_log_probabilities(logits: Tensor) -> Tensor:
    """Return log p of background and each class, ``(N, C + 1, *)``, also from one logit."""
    if logits.shape[1] == 1:
        return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], 1)
    return F.log_softmax(logits, 1)


def reduced(
    losses: Tensor,
    counted: Tensor,
    reduction: Reduction,
    class_weights: Tensor | None = None,
    label: Tensor | None = None,
) -> Tensor:
    """Reduce losses ``(N, *)``; what is not ``counted`` is 0 and no part of the mean.

    The mean is Σ wᵢ·lossᵢ / Σ wᵢ over the counted locations, w the weight of the location's class, 1 without
    ``class_weights``. That is what ``F.cross_entropy`` does. Where nothing is counted it is 0, not NaN.
    """
    check_reduction(reduction)
    weights = counted.to(losses.dtype)
    if class_weights is not None and label is not None:
        weights = weights * class_weights.to(losses)[label]
    losses = torch.where(counted, losses * weights, 0.0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    total = weights.sum()
    return losses.sum() / torch.where(total > 0, total, 1.0)
