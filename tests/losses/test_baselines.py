import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sparseshot.errors import InputError
from sparseshot.losses import (
    AnnotatedOnly,
    BackgroundRecalibration,
    CrossEntropy,
    FocalLoss,
    Hints,
    HuberLoss,
    Oracle,
)


def test_cross_entropy_is_that_of_torch_with_the_unannotated_as_background() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    target, annotated = (
        torch.tensor([0, 1, 2, 1, 0, -100]),
        torch.tensor([True, True, True, False, False, True]),
    )
    taken = torch.tensor([0, 1, 2, 0, 0, -100])
    expected = F.cross_entropy(logits, taken)
    torch.testing.assert_close(CrossEntropy()(logits, target, annotated=annotated), expected)
    weights = [1.0, 2.0, 3.0]
    torch.testing.assert_close(
        CrossEntropy(class_weights=weights)(logits, target, annotated=annotated),
        F.cross_entropy(logits, taken, weight=torch.tensor(weights)),
    )


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8])
def test_annotated_only_averages_over_the_annotated(kind: torch.dtype) -> None:
    logits = torch.tensor([[1.0], [2.0], [3.0]])
    target, annotated = torch.tensor([1, 0, 0], dtype=kind), torch.tensor([True, True, False])
    expected = F.binary_cross_entropy_with_logits(logits[:2, 0], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(AnnotatedOnly()(logits, target, annotated=annotated), expected)


def test_annotated_only_learns_foreground_everywhere() -> None:
    """What it is there to show: without any background the constant "foreground" is the best model."""
    bias = torch.zeros(1, requires_grad=True)
    for _ in range(100):
        (gradient,) = torch.autograd.grad(
            AnnotatedOnly()(bias.expand(10, 1), torch.tensor([1] + [0] * 9)), bias
        )
        bias = (bias - gradient).detach().requires_grad_()
    assert torch.sigmoid(bias) > 0.95


def test_oracle_sees_the_truth_and_what_is_ignored() -> None:
    logits = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    target, truth = torch.tensor([0, 0, -100, 1]), torch.tensor([1, 0, 1, -100])
    expected = F.binary_cross_entropy_with_logits(logits[:2, 0], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(Oracle()(logits, target, hints=Hints(truth=truth)), expected)


def test_truth_of_another_shape_raises() -> None:
    with pytest.raises(InputError, match=r"truth has shape \(3,\), the target \(2,\)"):
        Oracle()(torch.zeros(2, 1), torch.tensor([0, 0]), hints=Hints(truth=torch.tensor([0, 0, 0])))


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


def test_huber_by_hand() -> None:
    logits = torch.logit(torch.tensor([[0.9], [0.9], [0.2]], dtype=torch.float64))
    target = torch.tensor([1, 0, 0])
    assert HuberLoss(reduction="none")(logits, target).tolist() == pytest.approx([0.005, 0.405, 0.02])
    bounded = HuberLoss(delta=0.5, reduction="none")(logits, target)
    assert bounded.tolist() == pytest.approx([0.005, 0.5 * (0.9 - 0.25), 0.02])


def test_huber_loss_of_several_classes_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64))
    expected = 0.5 * 0.5 * (0.2**2 + 0.5**2 + 0.3**2)
    assert HuberLoss()(logits, torch.tensor([1])).item() == pytest.approx(expected)


def test_bad_delta_raises() -> None:
    with pytest.raises(InputError, match="delta is 0; give a number above 0"):
        HuberLoss(delta=0)
