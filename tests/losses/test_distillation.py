import torch
from torch import nn

from sparseshot.losses import CrossEntropy, Distillation, EmaTeacher, Hints


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
