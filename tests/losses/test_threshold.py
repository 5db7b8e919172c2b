import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparseshot.errors import InputError, TrainingWarning
from sparseshot.losses import (
    ExclusiveCrossEntropy,
    excluded_share,
    exclusive_cross_entropy,
    warn_of_runaway,
)
from sparseshot.losses.threshold import output_confidence, over_threshold, threshold_logit


def exclusion_mask(
    logits: Tensor, target: Tensor, *, annotated: Tensor | None = None, **parameters: Any
) -> Tensor:
    return ExclusiveCrossEntropy(**parameters).exclusion_mask(logits, target, annotated=annotated)


def test_mask_by_hand() -> None:
    logits = torch.tensor([[0.41], [0.40], [9.0], [9.0], [9.0]])  # p = 0.6011, 0.5987
    target = torch.tensor([0, 0, 1, -100, 1])
    annotated = torch.tensor([False, False, True, True, False])
    mask = exclusion_mask(logits, target, rho=0.6, annotated=annotated)
    assert mask.tolist() == [True, False, False, False, True]
    assert mask.dtype is torch.bool


def test_several_classes_ask_for_any_foreground() -> None:
    logits = torch.log(torch.tensor([[0.3, 0.35, 0.35], [0.5, 0.25, 0.25], [0.3, 0.7, 0.0001]]))
    assert exclusion_mask(logits, torch.tensor([0, 0, 0]), rho=0.6).tolist() == [True, False, True]


def test_beta_raises_rho_to_a_power() -> None:
    logits, target = torch.logit(torch.tensor([[0.24], [0.26], [0.51]])), torch.tensor([0, 0, 0])
    assert exclusion_mask(logits, target, rho=0.5, beta=2.0).tolist() == [False, True, True]
    assert exclusion_mask(logits, target, rho=0.5, beta=0.0).tolist() == [False, False, False]


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    channels=st.integers(1, 3),
    rho=st.floats(0.1, 1.0),
    bound=st.floats(0.05, 1.0),
)
def test_the_mask_is_what_the_loss_excludes(seed: int, channels: int, rho: float, bound: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, channels, 11, generator=generator).round(decimals=1)  # with ties
    target = torch.randint(-1, max(channels, 2), (3, 11), generator=generator)
    target[target == -1] = -100
    for dtype in (torch.float32, torch.float64):
        z = logits.to(dtype)
        mask = exclusion_mask(z, target, rho=rho, max_excluded=bound)
        losses = exclusive_cross_entropy(z, target, rho=rho, max_excluded=bound, reduction="none")
        assert torch.equal((losses == 0) & (target != -100), mask)
        assert int(mask.sum()) <= bound * int((target == 0).sum())


def test_threshold_is_exact_where_probabilities_are_not() -> None:
    assert threshold_logit(0.5) == 0.0
    assert math.isnan(threshold_logit(1.0))
    assert threshold_logit(1e-300, beta=2.0) == -math.inf
    near_one = 1.0 - 1e-9  # p of both logits rounds to 1 in float32
    mask = exclusion_mask(torch.tensor([[20.0], [21.0]]), torch.tensor([0, 0]), rho=near_one)
    assert mask.tolist() == [False, True]


def test_bound_ignores_what_is_annotated() -> None:
    logit = torch.tensor([5.0, 4.0, 3.0, 2.0])
    unannotated = torch.tensor([False, True, True, False])
    over = over_threshold(logit, unannotated, threshold=0.0, max_excluded=0.5)
    assert (over & unannotated).tolist() == [False, True, False, False]


def test_confidence_of_the_authors_package() -> None:
    assert output_confidence(torch.tensor([[0.7], [-3.0]])).tolist() == pytest.approx([0.7, -3.0])
    # The larger of two is background here, and it is "confident" all the same.
    assert output_confidence(torch.tensor([[9.0, 1.0, 2.0]])).tolist() == [7.0]


def test_share_counts_unannotated_locations_only() -> None:
    excluded = torch.tensor([True, False, False, False])
    assert excluded_share(excluded, torch.tensor([0, 0, 1, -100])) == 0.5
    annotated = torch.tensor([False, True, True, True])
    assert excluded_share(excluded, torch.tensor([0, 0, 1, -100]), annotated=annotated) == 1.0
    assert excluded_share(torch.tensor([False]), torch.tensor([1])) == 0.0


def test_a_runaway_is_warned_of() -> None:
    with pytest.warns(
        TrainingWarning, match="95% of the unannotated locations are excluded.* set max_excluded"
    ):
        warn_of_runaway(0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_runaway(0.5)
        warn_of_runaway(0.95, limit=0.99)


def test_bad_bound_raises() -> None:
    with pytest.raises(InputError, match=r"max_excluded is 1\.5; give a number in"):
        exclusion_mask(torch.zeros(1, 1), torch.tensor([0]), rho=0.5, max_excluded=1.5)


def test_exclusion_feeds_itself_unless_bounded() -> None:
    """A model that says "foreground" everywhere at first: without a bound nothing ever tells it otherwise."""

    def train(max_excluded: float) -> float:
        bias = torch.tensor([3.0], requires_grad=True)
        offset = torch.linspace(-0.5, 0.5, 100)
        target = (offset > 0.45).long()
        for _ in range(200):
            loss = exclusive_cross_entropy(
                (offset + bias).unsqueeze(1), target, rho=0.6, alpha=0.2, max_excluded=max_excluded
            )
            (gradient,) = torch.autograd.grad(loss, bias)
            bias = (bias - 5.0 * gradient).detach().requires_grad_()
        return bias.item()

    assert train(1.0) > 3.0
    assert train(0.5) < 0.5
