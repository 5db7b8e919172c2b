"""The kernel against the plain expression, in all the shapes logits come in."""

from typing import Any

import pytest
import torch
from torch import Tensor

import sparseshot
from sparseshot.losses import Call, fused
from sparseshot.losses.exclusive import compute
from sparseshot.losses.plain import Terms, plain_exclusive_cross_entropy
from sparseshot.losses.threshold import threshold_logit


def terms(**changes: Any) -> Terms:
    values: dict[str, Any] = {"threshold": threshold_logit(0.6), "alpha": 0.2, "gamma": 0.1}
    return Terms(**{**values, **changes})


def layouts(logits: Tensor) -> dict[str, Tensor]:
    """Return the same logits in several memory formats."""
    wide = torch.zeros(logits.shape[0], logits.shape[1] + 3, *logits.shape[2:])
    wide[:, 1:-2] = logits
    return {
        "contiguous": logits.contiguous(),
        "channels last": logits.movedim(1, -1).contiguous().movedim(-1, 1),
        "slice of more channels": wide[:, 1:-2],
        "transposed": logits.transpose(0, -1).contiguous().transpose(0, -1),
        "every second": torch.stack([logits, logits], -1)[..., 0],
    }


def test_the_bound_on_exclusion_counts_what_is_excluded_anyway() -> None:
    logits, target = torch.full((1, 1, 10), 5.0), torch.zeros(1, 10, dtype=torch.long)
    excluded = torch.arange(10)[None] < 5
    ours = terms(excluded=excluded, max_excluded=0.5)
    left = {
        dtype: int((compute(Call(logits.to(dtype), target), ours, "none") > 0).sum())
        for dtype in (torch.float32, torch.float64)
    }
    assert left == {torch.float32: 5, torch.float64: 5}


@pytest.mark.parametrize(
    "shape", [(2500, 1), (2500, 3), (3, 1, 1300), (2, 4, 37, 41), (2, 1, 5, 6, 7), (2, 5, 5, 6, 7)]
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_agrees_with_plain_in_every_memory_format(shape: tuple[int, ...], reduction: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    original = torch.randn(shape, generator=generator) * 5
    original.view(-1)[:4] = torch.tensor([-1e4, 1e4, 90.0, -90.0])
    target = torch.randint(0, max(shape[1], 2), (shape[0], *shape[2:]), generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.1] = -100
    annotated = torch.rand(target.shape, generator=generator) < 0.5
    excluded = torch.rand(target.shape, generator=generator) < 0.2
    slope = torch.randn(target.shape if reduction == "none" else (), generator=generator)
    weights = torch.rand(max(shape[1], 2), generator=generator)
    every_masks = [(None, None), (annotated, None), (annotated, excluded)]
    for certain, more in every_masks:
        for changes in (
            {},
            {"class_weights": weights},
            {"class_weights": weights, "max_excluded": 0.1},
            {"gamma": 0.0, "alpha": 1.0},
        ):
            results = {}
            for name, logits in {"plain": original.double(), **layouts(original)}.items():
                z = logits.detach().requires_grad_()
                assert fused.can_fuse(z) == (name != "plain")
                value = compute(Call(z, target, certain), terms(excluded=more, **changes), reduction)
                value.backward(slope.to(value))  # type: ignore[no-untyped-call]
                assert z.grad is not None
                results[name] = (value.detach().double(), z.grad.double())
            for name in layouts(original):
                torch.testing.assert_close(results[name], results["plain"], rtol=2e-6, atol=2e-6)


def test_logits_of_channels_last_models_are_not_copied() -> None:
    logits = torch.randn(2, 1, 8, 8).contiguous(memory_format=torch.channels_last)
    assert fused._rows(logits).data_ptr() == logits.data_ptr()
    several = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert fused._rows(several).data_ptr() == several.data_ptr()
    assert fused._rows(torch.empty_like(several)).shape == (2, 3, 64)


def test_gradient_can_be_asked_twice() -> None:
    logits = torch.randn(4, 1, 9, generator=torch.Generator().manual_seed(0), requires_grad=True)
    call = Call(logits, torch.ones(4, 9, dtype=torch.long))
    loss = fused.fused_exclusive_cross_entropy(call, terms(), "mean")
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    first.mul_(7.0)
    (second,) = torch.autograd.grad(loss * 2, logits)
    torch.testing.assert_close(second, first / 7.0 * 2)


@pytest.mark.parametrize("channels", [1, 3])
def test_second_derivatives_are_those_of_the_plain_expression(channels: int) -> None:
    original = torch.randn(5, channels, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randint(0, max(channels, 2), (5, 4), generator=torch.Generator().manual_seed(0))
    results = []
    for dtype, own in (
        (torch.float32, fused.fused_exclusive_cross_entropy),
        (torch.float64, plain_exclusive_cross_entropy),
    ):
        logits = original.to(dtype).requires_grad_()
        loss = own(Call(logits, target), terms(), "mean")
        (first,) = torch.autograd.grad(loss, logits, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), logits)
        results.append(second.double())
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_evaluation_needs_no_gradient() -> None:
    logits, target = torch.ones(2, 1, 3), torch.zeros(2, 3, dtype=torch.long)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            value = fused.fused_exclusive_cross_entropy(Call(logits + 0, target), terms(), "none")
        assert not value.requires_grad
        assert value.shape == (2, 3)


def test_functional_gradients_work() -> None:
    logits = torch.randn(4, 1, 9, generator=torch.Generator().manual_seed(0))
    target = torch.zeros(4, 9, dtype=torch.long)

    def loss(z: Tensor) -> Tensor:
        return fused.fused_exclusive_cross_entropy(Call(z, target), terms(), "mean")

    expected = torch.autograd.grad(loss(logits.requires_grad_()), logits)[0]
    torch.testing.assert_close(torch.func.grad(loss)(logits.detach()), expected)


def test_the_plain_expression_takes_what_the_kernel_cannot() -> None:
    assert fused.can_fuse(torch.zeros(1, 1))
    assert not fused.can_fuse(torch.zeros(1, 1, dtype=torch.float64))
    assert not fused.can_fuse(torch.zeros(1, 1, device="meta"))


def test_meta_tensors_are_computed_for_their_shape() -> None:
    logits = torch.zeros(2, 3, 4, device="meta")
    value = sparseshot.losses.exclusive_cross_entropy(
        logits, torch.zeros(2, 4, dtype=torch.long, device="meta"), rho=0.5, reduction="none"
    )
    assert value.shape == (2, 4)
