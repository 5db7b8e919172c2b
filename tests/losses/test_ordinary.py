import pytest
import torch
import torch.nn.functional as F

from sparseshot.errors import InputError
from sparseshot.losses import AnnotatedOnly, CrossEntropy, Hints, Oracle


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
