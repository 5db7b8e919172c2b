import math

import pytest
import torch
import torch.nn.functional as F

from sparseshot.losses import Locations, foreground_logit
from sparseshot.losses.locations import class_log_probabilities, reduce


def test_roles() -> None:
    target = torch.tensor([0, 1, 0, 2, -100, -100])
    annotated = torch.tensor([True, True, False, False, True, False])
    batch = Locations(torch.zeros(6, 3), target, annotated)
    assert batch.annotated.tolist() == [True, True, False, False, False, False]
    assert batch.unannotated.tolist() == [False, False, True, True, False, False]
    assert batch.label.tolist() == [0, 1, 0, 0, 0, 0]
    assert batch.counted.sum() == 4


def test_foreground_logit_is_the_logit_of_all_classes_together() -> None:
    logits = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = 1 - F.softmax(logits, 1)[:, 0]
    torch.testing.assert_close(foreground_logit(logits), torch.logit(p))
    assert torch.equal(foreground_logit(logits[:, :1]), logits[:, 0])


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_class_probabilities_sum_to_1(channels: int) -> None:
    logits = torch.randn(5, channels, 3, generator=torch.Generator().manual_seed(0))
    p = class_log_probabilities(logits).exp()
    assert p.shape == (5, max(channels, 2), 3)
    torch.testing.assert_close(p.sum(1), torch.ones(5, 3))


def test_a_wrong_class_that_cannot_be_read_makes_the_loss_nan() -> None:
    """On a GPU, or compiled, looking at the values would stall or break the graph."""
    compiled = torch.compile(lambda z, y: Locations(z, y).logits, backend="eager", fullgraph=True)
    logits = compiled(torch.zeros(3, 1), torch.tensor([0, 7, -100]))
    assert [math.isnan(v) for v in logits[:, 0].tolist()] == [False, True, False]


def test_mean_over_nothing_is_0() -> None:
    losses, nothing = torch.ones(3), torch.zeros(3)
    assert reduce(losses, nothing, "mean") == 0.0
    assert reduce(losses, nothing, "none").tolist() == [0.0, 0.0, 0.0]
