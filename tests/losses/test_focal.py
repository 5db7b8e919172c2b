import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sparseshot.errors import InputError
from sparseshot.losses import BackgroundRecalibration, FocalLoss


def test_focal_loss_by_hand() -> None:
    logits = torch.logit(torch.tensor([[0.9], [0.9], [0.2]], dtype=torch.float64))
    expected = [
        0.25 * 0.1**2 * -math.log(0.9),
        0.75 * 0.9**2 * -math.log(0.1),
        0.75 * 0.2**2 * -math.log(0.8),
    ]
    assert FocalLoss(reduction="none")(logits, torch.tensor([1, 0, 0])).tolist() == pytest.approx(expected)


def test_focal_loss_of_several_classes_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]], dtype=torch.float64))
    expected = [0.3 * 0.7**1.5 * -math.log(0.3), 0.7 * 0.8**1.5 * -math.log(0.2)]
    losses = FocalLoss(alpha=0.3, gamma=1.5, reduction="none")(logits, torch.tensor([2, 0]))
    assert losses.tolist() == pytest.approx(expected)


def test_without_focus_focal_loss_is_half_of_cross_entropy() -> None:
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    target = torch.arange(20) % 4
    loss = FocalLoss(alpha=0.5, gamma=0.0)(logits, target)
    torch.testing.assert_close(loss, 0.5 * F.cross_entropy(logits, target))


def test_recalibration_by_hand() -> None:
    p = torch.tensor([[0.9], [0.3], [0.6]], dtype=torch.float64)
    losses = BackgroundRecalibration(
        tau=0.5, beta=0.5, alpha=0.25, gamma=2.0, unannotated_weight=0.1, reduction="none"
    )(torch.logit(p), torch.tensor([1, 0, 0]))
    expected = [
        0.25 * 0.1**2 * -math.log(0.9),  # annotated: focal
        0.1 * 0.75 * 0.3**2 * -math.log(0.7),  # 1 − p = 0.7 ≥ τ: background
        0.1 * 0.75 * 0.5 * 0.4**2 * -math.log(0.6),  # 1 − p = 0.4 < τ: mirrored
    ]
    assert losses.tolist() == pytest.approx(expected)


def test_recalibration_pulls_doubtful_background_up() -> None:
    logits = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(BackgroundRecalibration()(logits, torch.tensor([0, 0])), logits)
    assert gradient[0] < 0 < gradient[1]


def test_certain_background_is_not_mirrored() -> None:
    logits = torch.tensor([[3.0]])
    target, certain = torch.tensor([0]), torch.tensor([True])
    assert BackgroundRecalibration()(logits, target, annotated=certain) == FocalLoss()(
        logits, target, annotated=certain
    )


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"gamma": -1.0}, {"gamma": math.nan}])
def test_bad_focal_parameters_raise(options: dict[str, Any]) -> None:
    for make in (FocalLoss, BackgroundRecalibration):
        with pytest.raises(InputError, match="give"):
            make(**options)


@pytest.mark.parametrize(
    "options", [{"tau": 0.0}, {"tau": 1.0}, {"beta": -1.0}, {"unannotated_weight": math.inf}]
)
def test_bad_recalibration_parameters_raise(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give"):
        BackgroundRecalibration(**options)
