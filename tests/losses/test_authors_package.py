"""Preset nki against the authors' own package, on the same inputs and the same random draws."""

import warnings

import pytest
import torch
from ece_loss import BECEWithLogitsLoss, ExclusiveCrossEntropyLoss
from torch import Tensor

from sparseshot.losses import ExclusiveCrossEntropy

EPOCHS = 300


def unannotated(target: Tensor) -> Tensor:
    return target == 0


def theirs(logits: Tensor, target: Tensor, *, epoch: int, seed: int) -> Tensor:
    """Return the losses of the authors' package; like ours it draws from torch's generator."""
    torch.manual_seed(seed)
    if logits.shape[1] > 1:
        loss: Tensor = ExclusiveCrossEntropyLoss()(logits, target, epoch=epoch)
        return loss
    binary: Tensor = BECEWithLogitsLoss()(
        logits[:, 0], target.to(logits.dtype), epoch=epoch, unannotated_mapping=unannotated
    )
    return binary


def ours(logits: Tensor, target: Tensor, *, epoch: int, seed: int) -> Tensor:
    torch.manual_seed(seed)
    loss = ExclusiveCrossEntropy.preset("nki", options={"reduction": "none"})
    return loss(logits, target, progress=epoch / EPOCHS)


def batch(channels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(3, channels, 20, 30, generator=generator) * 3).to(dtype).requires_grad_()
    target = torch.randint(0, max(channels, 2), (3, 20, 30), generator=generator)
    return logits, target


@pytest.mark.parametrize("epoch", [0, 40, 50, 100, 150, 200, 300])
@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_numbers_and_gradients(epoch: int, channels: int, dtype: torch.dtype) -> None:
    logits, target = batch(channels, dtype)
    results = []
    for loss in (ours, theirs):
        losses = loss(logits, target, epoch=epoch, seed=epoch)
        results.append((losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=2e-6)
    if epoch >= 150:
        assert (results[0][0][target == 0] > 0).any()  # background is taken in, and the comparison sees it


def test_the_excluded_are_those_over_the_threshold() -> None:
    logits, target = batch(1, torch.float32)
    mask = ExclusiveCrossEntropy.preset("nki").exclusion_mask(logits, target, progress=1.0)
    assert mask is not None
    assert torch.equal(mask, (target == 0) & (logits[:, 0] > 0.5))


def test_where_we_differ_the_authors_gradient_is_nan() -> None:
    """Confidently right background: their (1 - exp(-loss))^0.1 is infinitely steep where loss rounds to 0."""
    logits = torch.full((1, 1, 64), -20.0, requires_grad=True)
    target = torch.zeros(1, 64, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (their_gradient,) = torch.autograd.grad(theirs(logits, target, epoch=300, seed=0).sum(), logits)
        (our_gradient,) = torch.autograd.grad(ours(logits, target, epoch=300, seed=0).sum(), logits)
    assert their_gradient.isnan().any()
    assert torch.isfinite(our_gradient).all()
    # d/dz of α p^γ·(−log(1 − p)) is about α (1 + γ) p^(1 + γ) for small p.
    p = torch.sigmoid(torch.tensor(-20.0))
    torch.testing.assert_close(our_gradient.max(), 0.2 * 1.1 * p**1.1)
