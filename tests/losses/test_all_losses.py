"""What every loss promises, whatever it computes."""

import functools
import inspect
import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses import LOSSES, Hints, Loss, make_loss

NAMES = list(LOSSES)
OPTIONS: dict[str, dict[str, Any]] = {"nnpu": {"prior": 0.3}}


def made(name: str, **more: Any) -> Loss:
    torch.manual_seed(0)  # of those that sample
    return make_loss(name, {**OPTIONS.get(name, {}), **more})


def batch(
    channels: int, *, size: int = 60, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Hints]:
    generator = torch.Generator().manual_seed(channels)
    logits = torch.randn(2, channels, size, generator=generator, dtype=torch.float64) * 2
    truth = torch.randint(0, max(channels, 2), (2, size), generator=generator)
    target = torch.where(torch.rand(truth.shape, generator=generator) < 0.4, truth, 0)
    target[torch.rand(truth.shape, generator=generator) < 0.1] = -100
    teacher = logits + torch.randn(logits.shape, generator=generator)
    return logits.to(dtype), target, Hints(truth=truth, teacher_logits=teacher.to(dtype))


def value_and_gradient(loss: Loss, logits: Tensor, target: Tensor, **more: Any) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    value = loss(z, target, progress=1.0, **more)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 4])
def test_reductions_belong_together(name: str, channels: int) -> None:
    logits, target, hints = batch(channels, dtype=torch.float64)
    values = {r: made(name, reduction=r)(logits, target, hints=hints) for r in ("none", "sum", "mean")}
    counted = (target != -100) & ((target > 0) | (name != "annotated-only"))
    assert values["none"].shape == target.shape
    torch.testing.assert_close(values["none"].sum(), values["sum"])
    torch.testing.assert_close(values["sum"] / counted.sum(), values["mean"])
    assert (values["none"][~counted] == 0).all()


# The authors' package measures confidence otherwise where there are several logits.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "ece-nki"])
def test_two_logits_are_one_logit(name: str) -> None:
    logits, target, hints = batch(1, dtype=torch.float64)
    assert hints.teacher_logits is not None
    two = torch.cat([torch.zeros_like(logits), logits], 1)
    two_hints = Hints(
        truth=hints.truth,
        teacher_logits=torch.cat([torch.zeros_like(hints.teacher_logits), hints.teacher_logits], 1),
    )
    one_value, one_gradient = value_and_gradient(made(name), logits, target, hints=hints)
    value, gradient = value_and_gradient(made(name), two, target, hints=two_hints)
    torch.testing.assert_close(value, one_value)
    torch.testing.assert_close(gradient[:, 1:], one_gradient)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 4])
def test_trailing_dimensions_do_not_matter(name: str, channels: int) -> None:
    # The adaptive loss has a ρ of its own for points, and only in images can marks be seen to be points.
    make = functools.partial(made, name, **({"rho": 0.75} if name == "adaptive" else {}))
    logits, target, hints = batch(channels, dtype=torch.float64)
    flat = logits.movedim(1, 0).reshape(channels, -1).t()
    assert hints.truth is not None
    assert hints.teacher_logits is not None
    expected = make()(logits, target, hints=hints)
    square = Hints(
        truth=hints.truth.view(2, 6, 10), teacher_logits=hints.teacher_logits.view(2, channels, 6, 10)
    )
    torch.testing.assert_close(
        make()(logits.view(2, channels, 6, 10), target.view(2, 6, 10), hints=square), expected
    )
    vectors = Hints(
        truth=hints.truth.reshape(-1),
        teacher_logits=hints.teacher_logits.movedim(1, 0).reshape(channels, -1).t(),
    )
    torch.testing.assert_close(make()(flat, target.reshape(-1), hints=vectors), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 4])
def test_ignored_locations_are_not_there(name: str, channels: int) -> None:
    logits, target, hints = batch(channels, dtype=torch.float64)
    if name == "ece-nki":
        target = target.clamp(max=0)  # then sampling draws for nothing that counts
    ignored = target == -100
    changed = torch.where(ignored.unsqueeze(1), 50.0, logits)
    value, gradient = value_and_gradient(made(name), logits, target, hints=hints)
    changed_value, changed_gradient = value_and_gradient(made(name), changed, target, hints=hints)
    torch.testing.assert_close(changed_value, value)
    torch.testing.assert_close(changed_gradient, gradient)
    assert (gradient.movedim(1, -1)[ignored] == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_value_can_mean_ignored(name: str, channels: int, dtype: torch.dtype) -> None:
    logits, target, hints = batch(channels, dtype=dtype)
    expected = value_and_gradient(made(name), logits, target, hints=hints)
    for other in (torch.where(target == -100, 255, target), torch.where(target == -100, 255, target).byte()):
        loss = made(name, ignore_index=255)
        torch.testing.assert_close(value_and_gradient(loss, logits, other, hints=hints), expected)
    mask = loss.exclusion_mask(logits, other)
    assert mask is None or not mask[other == 255].any()
    for bad in (0, 1):
        with pytest.raises(InputError, match=f"ignore_index is {bad}"):
            made(name, ignore_index=bad)(logits, target, hints=hints)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_unsigned_target_is_not_taken_for_a_negative_one(name: str, dtype: torch.dtype) -> None:
    """In uint8, 156 has the bits of -100."""
    target, hints = torch.tensor([156, 0], dtype=torch.uint8), Hints(truth=torch.tensor([156, 0]))
    with pytest.raises(InputError, match=r"target is 156 at \(0,\)"):
        made(name)(torch.zeros(2, 1, dtype=dtype), target, annotated=torch.tensor([True, False]), hints=hints)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("logits", "target", "hint"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), r"target\.argmax\(1\)"),
        (
            torch.zeros(2, 3, 4),
            torch.ones(2, 3, 4).long(),
            "several classes, call the loss for each",
        ),
        (torch.zeros(2, 1, 4), torch.full((2, 4), 0.3), r"soft labels .*\(target > 0\.5\)\.long\(\)"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4).long(), r"logits\.unsqueeze\(1\)"),
        (torch.zeros(5), torch.zeros(5).long(), r"logits\.unsqueeze\(1\)"),
        (torch.zeros(2, 5, 6, 3), torch.zeros(2, 5, 6).long(), r"logits\.movedim\(-1, 1\)"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 1, 4).long(), r"target\.squeeze\(1\)"),
        ({"out": torch.zeros(2, 1, 4)}, torch.zeros(2, 4).long(), r"logits is of type dict.*\['out'\]"),
        (SimpleNamespace(logits=torch.zeros(2, 1, 4)), torch.zeros(2, 4).long(), r"\.logits"),
        (torch.zeros(2, 1, 4), [[0, 1, 0, 0]] * 2, "target is of type list"),
    ],
)
def test_common_mistakes_get_a_hint(name: str, logits: Any, target: Any, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        made(name)(logits, target)


@pytest.mark.parametrize("name", NAMES)
def test_marks_are_annotated_by_default(name: str) -> None:
    logits, target, hints = batch(4)
    default = made(name)(logits, target, hints=hints)
    assert made(name)(logits, target, annotated=target > 0, hints=hints) == default


@pytest.mark.parametrize("name", [n for n in NAMES if n != "oracle"])
def test_the_label_of_an_unannotated_location_is_not_believed(name: str) -> None:
    logits, target, hints = batch(4)
    annotated = (target > 0) & (torch.arange(60) % 2 == 0)
    hidden = torch.where(annotated | (target == -100), target, 0)
    value = made(name)(logits, target, annotated=annotated, hints=hints)
    assert made(name)(logits, hidden, annotated=annotated, hints=hints) == value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("marks", ["none", "all", "some"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_and_one_sided_batches_stay_finite(
    name: str, channels: int, marks: str, dtype: torch.dtype
) -> None:
    values = torch.tensor([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4], dtype=dtype)
    logits = torch.cartesian_prod(*[values] * channels).reshape(-1, channels).clone()
    n = len(logits)
    target = {"none": torch.zeros(n), "all": torch.ones(n), "some": torch.arange(n) % 2}[marks].long()
    hints = Hints(truth=torch.ones(n, dtype=torch.long), teacher_logits=logits.flip(0))
    value, gradient = value_and_gradient(made(name), logits, target, hints=hints)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
    assert gradient.dtype is dtype
    assert value.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)


# The step back of nnpu is no derivative, on purpose; it is tested on its own.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "nnpu"])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_are_derivatives(name: str, channels: int) -> None:
    logits, target, hints = batch(channels, size=8, dtype=torch.float64)
    options = (
        {"sampling": None} if name == "ece-nki" else {}
    )  # other draws each time would be another function
    loss = made(name, **options).eval()  # and so would be another estimate
    assert torch.autograd.gradcheck(lambda z: loss(z, target, hints=hints), (logits.requires_grad_(),))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.zeros(2, 1, 3, dtype=torch.long)}, "drop the channel"),
        ({"target": torch.zeros(2, 3)}, "give integers"),
        ({"target": torch.full((2, 3), 2)}, r"target is 2 at \(0, 0\)"),
        ({"annotated": torch.zeros(2, 3)}, "give booleans"),
        ({"progress": -0.01}, "progress is -0.01"),
        ({"progress": 1.01}, "progress is 1.01"),
        ({"progress": math.nan}, "progress is nan"),
        ({"annotated": torch.zeros(3, dtype=torch.bool)}, "annotated has shape"),
    ],
)
def test_every_loss_checks_its_input(name: str, change: dict[str, Any], message: str) -> None:
    hints = Hints(truth=torch.full((2, 3), 2 if "2" in message else 0), teacher_logits=torch.zeros(2, 1, 3))
    good: dict[str, Any] = {"logits": torch.zeros(2, 1, 3), "target": torch.zeros(2, 3, dtype=torch.long)}
    with pytest.raises(InputError, match=message):
        made(name)(**{**good, **change}, hints=hints)


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_through_a_checkpoint(name: str) -> None:
    logits, target, hints = batch(1)
    loss = make_loss(name)  # nnpu with its estimate
    loss(logits, target, hints=hints)
    again = make_loss(name)
    again.load_state_dict(loss.state_dict())
    values = []
    for one in (again, loss):
        torch.manual_seed(0)
        values.append(one(logits, target, hints=hints))
    assert values[0] == values[1]


@pytest.mark.parametrize("name", NAMES)
def test_only_those_that_exclude_say_what(name: str) -> None:
    logits, target, _ = batch(1)
    mask = made(name).exclusion_mask(logits.requires_grad_(), target, progress=1.0)
    if name.startswith("ece") or name == "adaptive":
        assert mask is not None
        assert mask.shape == target.shape
        assert 0 < mask.sum() < (target == 0).sum()
        assert not mask[target != 0].any()
    else:
        assert mask is None


@pytest.mark.parametrize("name", NAMES)
def test_without_hints_only_the_oracle_refuses(name: str) -> None:
    logits, target, _ = batch(1)
    assert made(name).wants <= set(inspect.signature(Hints).parameters)
    if name == "oracle":
        with pytest.raises(InputError, match=r"hints=Hints\(truth="):
            made(name)(logits, target)
    else:
        assert math.isfinite(made(name)(logits, target).item())


@pytest.mark.parametrize("name", NAMES)
def test_training_without_progress_warns_once_where_it_matters(name: str) -> None:
    logits, target, hints = batch(1)
    loss = make_loss(name)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        loss(logits, target, hints=hints)  # nothing is trained
        for _ in range(3):
            loss(logits.detach().requires_grad_(), target, hints=hints)
    matters = name.startswith("ece") or name in {"adaptive", "nnpu"}
    assert ["progress=step / steps" in str(each.message) for each in issued] == [True] * matters
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_loss(name).eval()(logits.detach().requires_grad_(), target, hints=hints)
