"""Exclusive cross-entropy on the CPU in float32: loss and gradient in one pass, nothing else kept."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparseshot.losses.kernels import exclusive_pass
from sparseshot.losses.locations import Call, Reduction, values_can_be_read
from sparseshot.losses.plain import Terms, excluded_locations, plain_exclusive_cross_entropy
from sparseshot.losses.threshold import NEVER


def can_fuse(logits: Tensor) -> bool:
    """Return whether the one-pass kernel can take these logits."""
    plain = type(logits) in (Tensor, torch.nn.Parameter)
    return plain and logits.dtype is torch.float32 and values_can_be_read(logits)


def fused_exclusive_cross_entropy(call: Call, terms: Terms, reduction: Reduction) -> Tensor:
    """Compute what :func:`plain_exclusive_cross_entropy` computes, in a fraction of its time."""
    # Tensors are arguments of their own, so that autograd keeps them no longer than it must.
    value: Tensor = _Fused.apply(  # type: ignore[no-untyped-call]
        call.logits, call.target, call.annotated, call.ignore_index, terms, reduction
    )[0]
    return value


class _Fused(torch.autograd.Function):
    """Return the loss, the gradient of the sum of the losses, the factor from there to that of the loss."""

    @staticmethod
    def forward(  # noqa: PLR0917  autograd passes positional arguments
        logits: Tensor,
        target: Tensor,
        annotated: Tensor | None,
        ignore_index: int,
        terms: Terms,
        reduction: Reduction,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dense = logits.detach()
        if not (dense.is_contiguous() or dense.movedim(1, -1).is_contiguous()):
            dense = dense.contiguous()
        gradient = torch.empty_like(dense)
        losses = dense.new_empty(target.shape if reduction == "none" else 0)
        weights = dense.new_empty(0) if terms.class_weights is None else terms.class_weights.to(dense)

        def run(threshold: float, excluded: Tensor | None) -> tuple[float, float, float, float, float]:
            return exclusive_pass(  # type: ignore[no-any-return]
                _rows(dense).numpy(),
                _flat(target.view(torch.uint8) if target.dtype is torch.bool else target),
                _flat(annotated),
                _flat(excluded),
                weights.numpy(),
                np.float32(threshold),
                np.float32(terms.alpha),
                np.float32(terms.gamma),
                np.float32(ignore_index),
                _flat(losses),
                _rows(gradient).numpy(),
            )

        total, weight, n_unannotated, n_excluded, n_wrong = run(terms.threshold, terms.excluded)
        bounded = terms.max_excluded < 1 and terms.excluded is not None  # the pass counts no given ones
        if n_wrong or bounded or n_excluded > terms.max_excluded * n_unannotated:
            call = Call(dense, target, annotated, ignore_index=ignore_index)
            excluded = excluded_locations(call.read(), terms)  # raises for a wrong class
            total, weight, *_ = run(NEVER, excluded)
        scale = 1.0 / weight if reduction == "mean" and weight > 0 else 1.0
        value = losses if reduction == "none" else dense.new_tensor(total * scale)
        return value, gradient, dense.new_tensor(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        logits, target, annotated, ctx.ignore_index, ctx.terms, ctx.reduction = inputs
        _, gradient, scale = output
        ctx.mark_non_differentiable(gradient, scale)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, annotated, gradient, scale)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: None) -> tuple[Tensor, None, None, None, None, None]:
        logits, target, annotated, gradient, scale = ctx.saved_tensors
        # Enabled only for a second derivative; the kernel's gradient is a constant.
        if torch.is_grad_enabled():
            call = Call(logits, target, annotated, ignore_index=ctx.ignore_index)
            value = plain_exclusive_cross_entropy(call, ctx.terms, ctx.reduction)
            (gradient,) = torch.autograd.grad(value, logits, slope, create_graph=True)
        else:
            gradient = gradient * (slope.unsqueeze(1) if ctx.reduction == "none" else slope * scale)
        return gradient, None, None, None, None, None


def _rows(logits: Tensor) -> Tensor:
    """View logits as ``(N, K, M)`` with M as long as the memory format allows."""
    if logits.shape[1] == 1:
        return logits.reshape(1, 1, -1)
    if logits.ndim == 2:
        return logits.t().unsqueeze(0)
    return logits.flatten(2)


def _flat(values: Tensor | None) -> Any:
    return np.empty(0, np.bool_) if values is None else values.reshape(-1).numpy()
