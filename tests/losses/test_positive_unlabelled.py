import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparseshot.errors import InputError
from sparseshot.losses import Hints, NonNegativePU, estimate_prior


def risk_by_hand(z: Tensor, marked: Tensor, prior: float) -> tuple[Tensor, Tensor]:
    """Return π E_P[ℓ⁺] and E_U[ℓ⁻] − π E_P[ℓ⁻] for the sigmoid loss, U being everything."""
    positive = prior * torch.sigmoid(-z[marked]).mean()
    return positive, torch.sigmoid(z).mean() - prior * torch.sigmoid(z[marked]).mean()


def example(shift: float) -> tuple[Tensor, Tensor]:
    z = torch.randn(40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = (torch.arange(40) < 8).long()
    z[:8] += shift
    return z.requires_grad_(), target


def test_risk_by_hand_while_the_bracket_is_positive() -> None:
    z, target = example(shift=0.5)
    positive, bracket = risk_by_hand(z[:, 0], target > 0, 0.3)
    assert bracket > 0
    expected = positive + bracket
    loss = NonNegativePU(prior=0.3)(z, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(expected, z))


@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_a_negative_bracket_counts_as_0_and_steps_back(gamma: float) -> None:
    z, target = example(shift=9.0)
    positive, bracket = risk_by_hand(z[:, 0] - 3.0, target > 0, 0.9)
    assert bracket < 0
    loss = NonNegativePU(prior=0.9, gamma=gamma)(z - 3.0, target)
    torch.testing.assert_close(loss, positive)
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(-gamma * bracket, z))


def test_beta_lets_the_bracket_be_a_little_negative() -> None:
    z, target = example(shift=9.0)
    positive, bracket = risk_by_hand(z[:, 0] - 3.0, target > 0, 0.9)
    loss = NonNegativePU(prior=0.9, beta=1.0)(z - 3.0, target)
    torch.testing.assert_close(loss, positive + bracket)
    clipped = NonNegativePU(prior=0.9, beta=0.01)(z - 3.0, target)
    torch.testing.assert_close(clipped, positive - 0.01)


@pytest.mark.parametrize("channels", [1, 4])
def test_with_everything_annotated_it_is_the_ordinary_risk(channels: int) -> None:
    logits = torch.randn(50, channels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.arange(50) % max(channels, 2)
    prior = float((target > 0).double().mean())
    loss = NonNegativePU(prior=prior, surrogate="logistic")(
        logits, target, annotated=torch.ones(50, dtype=torch.bool)
    )
    if channels == 1:
        expected = F.binary_cross_entropy_with_logits(logits[:, 0], target.double())
    else:
        expected = F.cross_entropy(logits, target)
    torch.testing.assert_close(loss, expected)


def test_prior_from_histograms() -> None:
    generator = torch.Generator().manual_seed(0)
    foreground = torch.rand(200_000, generator=generator) < 0.3
    score = torch.randn(200_000, generator=generator) + 3.0 * foreground
    marked = score[foreground & (torch.rand(200_000, generator=generator) < 0.1)]
    histograms = [torch.histc(v, bins=60, min=-5, max=8) for v in (marked, score)]
    assert float(estimate_prior(*histograms)) == pytest.approx(0.3, abs=0.02)


def test_prior_from_nothing_is_still_a_share() -> None:
    assert 0.0 < float(estimate_prior(torch.zeros(4), torch.zeros(4))) < 1.0


@pytest.mark.parametrize("prior", [0.1, 0.4])
def test_the_prior_is_found_while_training(prior: float) -> None:
    torch.manual_seed(0)
    model, loss, steps = nn.Linear(2, 1), NonNegativePU(), 200
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for step in range(steps):
        truth = torch.rand(1000) < prior
        points = torch.randn(1000, 2) + 3.0 * truth.unsqueeze(1) * torch.tensor([1.0, 0.0])
        target = (truth & (torch.rand(1000) < 0.2)).long()
        value = loss(model(points), target, progress=step / steps)
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    seen = loss.histograms
    assert float(estimate_prior(*seen.counts[:2, 0])) == pytest.approx(prior, abs=0.05)
    found = model(torch.tensor([[3.0, 0.0], [0.0, 0.0]])) > 0
    assert found.flatten().tolist() == [True, False]


def test_the_prior_of_several_classes_is_that_of_any() -> None:
    loss = NonNegativePU()
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 4, (2, 16, 16), generator=generator)
    assert loss(torch.randn(2, 4, 16, 16, generator=generator), target, progress=0.5).isfinite()
    assert int(loss.histograms.counts[0].sum()) == int((target > 0).sum())


def test_the_prior_can_be_that_of_the_ground_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, truth = torch.randn(1000, 1, generator=generator), torch.arange(1000) % 4 == 0
    target = torch.where(truth & (torch.rand(1000, generator=generator) < 0.2), 1, 0)
    target[:100] = -100
    value = NonNegativePU(prior="truth")(logits, target, progress=0.0, hints=Hints(truth=truth.long()))
    torch.testing.assert_close(value, NonNegativePU(prior=0.25)(logits, target))
    with pytest.raises(InputError, match=r"hints=Hints\(truth="):
        NonNegativePU(prior="truth")(logits, target)


def test_evaluation_does_not_touch_the_estimate() -> None:
    loss = NonNegativePU().eval()
    loss(torch.zeros(3, 1), torch.tensor([0, 1, 0]))
    assert loss.histograms.counts[1].sum() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"prior": 0.0},
        {"prior": 1.0},
        {"prior": "true"},
        {"surrogate": "hinge"},
        {"gamma": -1.0},
        {"beta": math.nan},
        {"warm_up": 2.0},
    ],
)
def test_bad_parameters_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"; (give|choose) "):
        NonNegativePU(**options)


def test_it_wants_the_truth_only_if_the_prior_comes_from_it() -> None:
    assert NonNegativePU(prior="truth").wants == {"truth"}
    assert not NonNegativePU(prior=0.2).wants
