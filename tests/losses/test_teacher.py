import math
from typing import Any

import pytest
import torch
from torch import nn

from sparseshot.errors import InputError
from sparseshot.losses import CrossEntropy, Distillation, EarlyLearningRegularisation, EmaTeacher, Hints


def test_by_hand() -> None:
    logits = torch.logit(torch.tensor([[0.8], [0.3]], dtype=torch.float64))
    teacher = torch.logit(torch.tensor([[0.9], [0.6]], dtype=torch.float64))
    losses = EarlyLearningRegularisation(strength=2.0, reduction="none")(
        logits, torch.tensor([0, 1]), hints=Hints(teacher_logits=teacher)
    )
    agreement = [0.8 * 0.9 + 0.2 * 0.1, 0.3 * 0.6 + 0.7 * 0.4]
    expected = [-math.log(p) + 2.0 * math.log(1 - a) for p, a in zip((0.2, 0.3), agreement, strict=True)]
    assert losses.tolist() == pytest.approx(expected)


def test_without_strength_it_is_cross_entropy() -> None:
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    target = torch.arange(20) % 4
    torch.testing.assert_close(
        EarlyLearningRegularisation(strength=0.0)(logits, target), CrossEntropy()(logits, target)
    )


def test_it_pulls_towards_the_teacher() -> None:
    logits = torch.tensor([[0.0]], requires_grad=True)
    target, teacher = torch.tensor([0]), torch.tensor([[4.0]])
    slopes = [
        torch.autograd.grad(
            EarlyLearningRegularisation(strength=strength)(
                logits, target, hints=Hints(teacher_logits=teacher)
            ),
            logits,
        )[0].item()
        for strength in (0.0, 1.0, 3.0)
    ]
    assert slopes[0] > slopes[1] > 0 > slopes[2]


def test_a_certain_teacher_leaves_the_loss_a_bottom() -> None:
    sure = torch.tensor([[1e4]])
    loss = EarlyLearningRegularisation(strength=1.0)(
        sure, torch.tensor([1]), hints=Hints(teacher_logits=sure)
    )
    assert loss.item() == pytest.approx(math.log(1e-4), rel=1e-3)


def test_the_teacher_carries_no_gradient() -> None:
    teacher = torch.tensor([[1.0]], requires_grad=True)
    logits = torch.tensor([[0.0]], requires_grad=True)
    loss = EarlyLearningRegularisation()(logits, torch.tensor([0]), hints=Hints(teacher_logits=teacher))
    (gradient,) = torch.autograd.grad(loss, teacher, allow_unused=True)
    assert gradient is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EarlyLearningRegularisation(strength=-1.0), "strength is -1"),
        (lambda: EmaTeacher(nn.Linear(1, 1), decay=1.5), "decay is 1.5"),
        (
            lambda: EarlyLearningRegularisation()(
                torch.zeros(2, 1), torch.tensor([0, 0]), hints=Hints(teacher_logits=torch.zeros(1, 1))
            ),
            "same input",
        ),
    ],
)
def test_bad_input_raises(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 1))


def test_teacher_averages_weights_and_keeps_statistics() -> None:
    torch.manual_seed(0)
    pupil = model()
    teacher = EmaTeacher(pupil, decay=0.75)
    teacher.update(pupil)
    before = pupil[0].weight.detach().clone()  # type: ignore[index]
    with torch.no_grad():
        pupil[0].weight.add_(1.0)  # type: ignore[index]
        pupil(torch.randn(4, 1, 8, 8))  # moves the running statistics
    teacher.update(pupil)
    averaged = teacher.averaged.module
    torch.testing.assert_close(averaged[0].weight, before + 0.25)  # type: ignore[index]
    torch.testing.assert_close(averaged[1].running_mean, pupil[1].running_mean)  # type: ignore[index]


def test_teacher_speaks_as_in_evaluation_and_learns_nothing_by_itself() -> None:
    torch.manual_seed(0)
    pupil, images = model(), torch.randn(2, 1, 8, 8)
    teacher = EmaTeacher(pupil)
    teacher.update(pupil)
    teacher.train()
    first, second = teacher(images), teacher(images)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert not any(p.requires_grad for p in teacher.parameters())
    assert pupil.training


def test_teacher_goes_through_a_checkpoint() -> None:
    torch.manual_seed(0)
    pupil, images = model(), torch.randn(2, 1, 8, 8)
    teacher = EmaTeacher(pupil)
    teacher.update(pupil)
    again = EmaTeacher(model())
    again.load_state_dict(teacher.state_dict())
    assert torch.equal(again(images), teacher(images))


def test_with_everything_annotated_it_is_cross_entropy() -> None:
    logits, target = torch.randn(3, 4, 20), torch.randint(0, 4, (3, 20))
    every = torch.ones_like(target, dtype=torch.bool)
    expected = CrossEntropy()(logits, target, annotated=every)
    hints = Hints(teacher_logits=torch.randn_like(logits))
    value = Distillation(emphasis=2.0)(logits, target, annotated=every, hints=hints)
    torch.testing.assert_close(value, 2 * expected)


def test_a_model_that_agrees_with_its_teacher_has_no_gradient_where_nothing_is_marked() -> None:
    logits = torch.randn(2, 1, 30, requires_grad=True)
    target = torch.zeros(2, 30, dtype=torch.long)
    target[0, 0] = 1
    Distillation()(logits, target, hints=Hints(teacher_logits=logits.detach())).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0, 0, 0] < 0
    assert logits.grad[0, 0, 1:].abs().max() < 1e-7
    assert logits.grad[1].abs().max() < 1e-7


def test_it_is_made_for_the_threshold_of_the_teacher() -> None:
    assert Distillation(threshold=0.3).built_for == 0.3


def test_a_frozen_teacher_stays() -> None:
    model = nn.Linear(2, 1)
    teacher = EmaTeacher(model, decay=1.0)
    before = teacher(torch.ones(1, 2))
    with torch.no_grad():
        model.weight += 1
    teacher.update(model)
    assert torch.equal(teacher(torch.ones(1, 2)), before)
