import pytest
import torch

from sparseshot.errors import InputError
from sparseshot.losses import HuberLoss


def test_huber_by_hand() -> None:
    logits = torch.logit(torch.tensor([[0.9], [0.9], [0.2]], dtype=torch.float64))
    target = torch.tensor([1, 0, 0])
    assert HuberLoss(reduction="none")(logits, target).tolist() == pytest.approx([0.005, 0.405, 0.02])
    bounded = HuberLoss(delta=0.5, reduction="none")(logits, target)
    assert bounded.tolist() == pytest.approx([0.005, 0.5 * (0.9 - 0.25), 0.02])


def test_several_classes_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64))
    expected = 0.5 * 0.5 * (0.2**2 + 0.5**2 + 0.3**2)
    assert HuberLoss()(logits, torch.tensor([1])).item() == pytest.approx(expected)


def test_bad_delta_raises() -> None:
    with pytest.raises(InputError, match="delta is 0; give a number above 0"):
        HuberLoss(delta=0)
