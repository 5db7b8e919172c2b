import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses import by_hand
from torch import Tensor

from sparseshot.errors import InputError
from sparseshot.losses import Constant, ExclusiveCrossEntropy, Linear, Ramp, Sigmoid, exclusive_cross_entropy

DTYPES = [torch.float32, torch.float64]


def batch(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return logits of this shape and a target with all classes and some ignored locations."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) * 3
    target = torch.randint(0, max(shape[1], 2), (shape[0], *shape[2:]), generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.1] = -100
    return logits.requires_grad_(), target


def value_and_gradient(loss: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("everything_annotated", [True, False])
def test_without_exclusion_it_is_binary_cross_entropy(dtype: torch.dtype, everything_annotated: bool) -> None:
    logits, target = batch(3, 1, 17, 5, dtype=dtype)
    target = target.clamp(min=0)  # torch's loss cannot ignore
    annotated = torch.ones_like(target, dtype=torch.bool) if everything_annotated else None
    ours = exclusive_cross_entropy(logits, target, rho=1.0, annotated=annotated)
    theirs = F.binary_cross_entropy_with_logits(logits[:, 0], target.to(dtype))
    torch.testing.assert_close(value_and_gradient(ours, logits), value_and_gradient(theirs, logits))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("everything_annotated", [True, False])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.0, 0.0]])
@pytest.mark.parametrize("shape", [(40, 4), (3, 4, 50), (2, 4, 9, 7), (2, 4, 3, 4, 5)])
def test_without_exclusion_it_is_cross_entropy(
    dtype: torch.dtype, everything_annotated: bool, weights: list[float] | None, shape: tuple[int, ...]
) -> None:
    logits, target = batch(*shape, dtype=dtype)
    annotated = torch.ones_like(target, dtype=torch.bool) if everything_annotated else None
    weight = None if weights is None else torch.tensor(weights, dtype=dtype)
    for reduction in ("mean", "sum"):
        ours = exclusive_cross_entropy(
            logits, target, rho=1.0, annotated=annotated, class_weights=weight, reduction=reduction
        )
        theirs = F.cross_entropy(logits, target, weight=weight, reduction=reduction)
        torch.testing.assert_close(value_and_gradient(ours, logits), value_and_gradient(theirs, logits))
    losses = exclusive_cross_entropy(
        logits, target, rho=1.0, annotated=annotated, class_weights=weight, reduction="none"
    )
    torch.testing.assert_close(losses, F.cross_entropy(logits, target, weight=weight, reduction="none"))


# p is 0.8 at log 4, 0.6 at log 1.5, 0.2 at -log 4.
HAND = [
    # z, target, annotated, loss with ρ = 0.7, α = 0.5, γ = 2
    (math.log(4.0), 1, True, -math.log(0.8)),
    (math.log(4.0), 0, True, -math.log(0.2)),  # certain background: neither excluded nor weighted
    (math.log(4.0), 0, False, 0.0),  # p = 0.8 ≥ 0.7
    (math.log(1.5), 0, False, 0.5 * 0.6**2 * -math.log(0.4)),
    (-math.log(4.0), 0, False, 0.5 * 0.2**2 * -math.log(0.8)),
    (-math.log(4.0), 1, False, 0.5 * 0.2**2 * -math.log(0.8)),  # an unannotated label is not believed
    (math.log(4.0), -100, False, 0.0),
    (math.log(4.0), -100, True, 0.0),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_table_computed_by_hand(dtype: torch.dtype) -> None:
    logits = torch.tensor([[row[0]] for row in HAND], dtype=dtype)
    target = torch.tensor([row[1] for row in HAND])
    annotated = torch.tensor([row[2] for row in HAND])
    expected = torch.tensor([row[3] for row in HAND], dtype=dtype)

    def loss(reduction: Any) -> Tensor:
        return exclusive_cross_entropy(
            logits, target, rho=0.7, annotated=annotated, alpha=0.5, gamma=2.0, reduction=reduction
        )

    torch.testing.assert_close(loss("none"), expected)
    torch.testing.assert_close(loss("sum"), expected.sum())
    torch.testing.assert_close(loss("mean"), expected.sum() / 6)  # two are ignored


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    channels=st.integers(1, 5),
    rho=st.floats(0.05, 1.0),
    beta=st.floats(0.1, 3.0),
    alpha=st.floats(0.0, 2.0),
    gamma=st.floats(0.0, 3.0),
    weighted=st.booleans(),
    last=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_agrees_with_the_formula_location_by_location(
    *,
    data: st.DataObject,
    channels: int,
    rho: float,
    beta: float,
    alpha: float,
    gamma: float,
    weighted: bool,
    last: bool,
    dtype: torch.dtype,
) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = (2, channels, *data.draw(st.sampled_from([(), (7,), (3, 5), (2, 2, 3)])))
    logits = generator.normal(0, 4, shape).astype(np.float32)
    target = generator.integers(0, max(channels, 2), (shape[0], *shape[2:]))
    target[generator.random(target.shape) < 0.1] = -100
    annotated = generator.random(target.shape) < 0.5
    weights = generator.uniform(0, 2, max(channels, 2)).tolist() if weighted else None
    losses, mean = by_hand.exclusive(
        logits.astype(np.float64),
        target,
        annotated,
        rho=rho,
        beta=beta,
        alpha=alpha,
        gamma=gamma,
        class_weights=weights,
    )
    given_logits = torch.from_numpy(logits).to(dtype)
    if last:
        given_logits = given_logits.movedim(1, -1).contiguous().movedim(-1, 1)

    def ours(reduction: Any) -> Tensor:
        return exclusive_cross_entropy(
            given_logits,
            torch.from_numpy(target),
            rho=rho,
            annotated=torch.from_numpy(annotated),
            beta=beta,
            alpha=alpha,
            gamma=gamma,
            class_weights=None if weights is None else torch.tensor(weights, dtype=dtype),
            reduction=reduction,
        )

    tolerance = 2e-6 if dtype is torch.float32 else 1e-12
    np.testing.assert_allclose(ours("none").numpy(), losses, rtol=5 * tolerance, atol=tolerance)
    np.testing.assert_allclose(float(ours("mean")), mean, rtol=5 * tolerance, atol=tolerance)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradient_is_the_derivative(channels: int, reduction: Any) -> None:
    logits, target = batch(2, channels, 6, dtype=torch.float64)
    annotated = torch.rand(target.shape, generator=torch.Generator().manual_seed(1)) < 0.5

    def loss(z: Tensor) -> Tensor:
        weights = torch.linspace(0.5, 1.5, max(channels, 2), dtype=torch.float64)
        return exclusive_cross_entropy(
            z,
            target,
            rho=0.6,
            annotated=annotated,
            alpha=0.2,
            gamma=0.1,
            class_weights=weights,
            reduction=reduction,
        )

    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rho_1_excludes_nothing_also_where_p_rounds_to_1(dtype: torch.dtype) -> None:
    logits, target = torch.full((1, 1), 100.0, dtype=dtype), torch.tensor([0])
    assert float(exclusive_cross_entropy(logits, target, rho=1.0)) == 100.0
    assert float(exclusive_cross_entropy(logits, target, rho=1.0 - 1e-12)) == 0.0
    assert math.isinf(float(exclusive_cross_entropy(logits * math.inf, target, rho=1.0)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_threshold_itself_is_excluded(dtype: torch.dtype) -> None:
    logits, target = torch.zeros(1, 1, dtype=dtype), torch.tensor([0])
    assert float(exclusive_cross_entropy(logits, target, rho=0.5)) == 0.0
    assert float(exclusive_cross_entropy(logits - 1e-6, target, rho=0.5)) == pytest.approx(math.log(2.0))


def test_exclusion_carries_no_gradient() -> None:
    logits = torch.tensor([[3.0], [-3.0]], requires_grad=True)
    loss = exclusive_cross_entropy(logits, torch.tensor([0, 0]), rho=0.5)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0] == 0.0
    assert gradient[1] > 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("marks", ["none", "all", "some"])
def test_extreme_logits_stay_finite(dtype: torch.dtype, channels: int, marks: str) -> None:
    values = torch.tensor([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4], dtype=dtype)
    logits = torch.cartesian_prod(*[values] * channels).reshape(-1, channels).clone().requires_grad_()
    n = len(logits)
    target = {"none": torch.zeros(n), "all": torch.ones(n), "some": torch.arange(n) % 2}[marks].long()
    loss = exclusive_cross_entropy(logits, target, rho=1.0, alpha=0.2, gamma=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.dtype is dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 1, 3), (0, 1, 3), (4, 3, 0), (0, 3)])
def test_nothing_to_learn_from_is_0_not_nan(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape, dtype=dtype).requires_grad_()
    target = torch.full((shape[0], *shape[2:]), -100)
    loss = exclusive_cross_entropy(logits, target, rho=0.5, max_excluded=0.5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_is_not_hidden(dtype: torch.dtype, channels: int, place: int) -> None:
    logits = torch.zeros(2, channels, dtype=dtype)
    logits[0, place % channels] = math.nan
    for target in ([0, 0], [1, 0]):
        assert math.isnan(float(exclusive_cross_entropy(logits, torch.tensor(target), rho=0.9)))


def test_mixed_precision_computes_in_float32() -> None:
    logits, target = batch(2, 1, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = exclusive_cross_entropy(logits.bfloat16(), target, rho=0.6, alpha=0.2, gamma=0.1)
    assert loss.dtype is torch.float32
    torch.testing.assert_close(
        loss, exclusive_cross_entropy(logits.bfloat16().float(), target, rho=0.6, alpha=0.2, gamma=0.1)
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_keeps_only_the_most_confident_out(channels: int, dtype: torch.dtype) -> None:
    logits = torch.zeros(6, channels, dtype=dtype)
    logits[:, -1] = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    target = torch.tensor([0, 0, 0, 0, 0, 1])
    losses = exclusive_cross_entropy(logits, target, rho=0.5, max_excluded=0.4, reduction="none")
    assert (losses == 0).tolist() == [False, False, False, True, True, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_holds_where_all_locations_say_the_same(dtype: torch.dtype) -> None:
    logits, target = torch.ones(8, 1, dtype=dtype), torch.zeros(8, dtype=torch.long)
    assert float(exclusive_cross_entropy(logits, target, rho=0.5)) == 0.0
    assert float(exclusive_cross_entropy(logits, target, rho=0.5, max_excluded=0.5)) > 0.0


def layouts(logits: Tensor) -> dict[str, Tensor]:
    """Return the same logits in several memory formats."""
    wide = torch.zeros(logits.shape[0], logits.shape[1] + 3, *logits.shape[2:])
    wide[:, 1:-2] = logits
    return {
        "contiguous": logits.contiguous(),
        "channels last": logits.movedim(1, -1).contiguous().movedim(-1, 1),
        "slice of more channels": wide[:, 1:-2],
        "transposed": logits.transpose(0, -1).contiguous().transpose(0, -1),
    }


@pytest.mark.parametrize("shape", [(2500, 1), (2500, 3), (2, 4, 37, 41), (2, 1, 5, 6, 7), (2, 5, 5, 6, 7)])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_precision_and_memory_format_do_not_matter(shape: tuple[int, ...], reduction: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    original = torch.randn(shape, generator=generator) * 5
    original.view(-1)[:4] = torch.tensor([-1e4, 1e4, 90.0, -90.0])
    target = torch.randint(0, max(shape[1], 2), (shape[0], *shape[2:]), generator=generator)
    target[torch.rand(target.shape, generator=generator) < 0.1] = -100
    annotated, excluded = (torch.rand(target.shape, generator=generator) < share for share in (0.5, 0.2))
    slope = torch.randn(target.shape if reduction == "none" else (), generator=generator)
    weights = torch.rand(max(shape[1], 2), generator=generator)
    cases: list[dict[str, Any]] = [
        {"alpha": 0.2, "gamma": 0.1},
        {"annotated": annotated, "excluded": excluded, "class_weights": weights, "gamma": 0.1},
        {"annotated": annotated, "class_weights": weights, "max_excluded": 0.1},
    ]
    for options in cases:
        results = {}
        for name, logits in {"float64": original.double(), **layouts(original)}.items():
            z = logits.detach().requires_grad_()
            value = exclusive_cross_entropy(z, target, rho=0.6, reduction=reduction, **options)
            value.backward(slope.to(value))  # type: ignore[no-untyped-call]
            assert z.grad is not None
            results[name] = (value.detach().double(), z.grad.double())
        for name in layouts(original):
            torch.testing.assert_close(results[name], results["float64"], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_counts_what_is_excluded_anyway(dtype: torch.dtype) -> None:
    logits, target = torch.full((1, 1, 10), 5.0, dtype=dtype), torch.zeros(1, 10, dtype=torch.long)
    losses = exclusive_cross_entropy(
        logits, target, rho=0.6, excluded=torch.arange(10)[None] < 5, max_excluded=0.5, reduction="none"
    )
    assert int((losses > 0).sum()) == 5


def test_evaluation_needs_no_gradient() -> None:
    logits, target = torch.ones(2, 1, 3), torch.zeros(2, 3, dtype=torch.long)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            value = exclusive_cross_entropy(logits + 0, target, rho=0.9, reduction="none")
        assert not value.requires_grad
        assert value.shape == (2, 3)


def test_functional_gradients_work() -> None:
    logits, target = batch(4, 1, 9)

    def loss(z: Tensor) -> Tensor:
        return exclusive_cross_entropy(z, target, rho=0.6, gamma=0.1)

    expected = torch.autograd.grad(loss(logits), logits)[0]
    torch.testing.assert_close(torch.func.grad(loss)(logits.detach()), expected)


def test_meta_tensors_are_computed_for_their_shape() -> None:
    target = torch.zeros(2, 4, dtype=torch.long, device="meta")
    value = exclusive_cross_entropy(torch.zeros(2, 3, 4, device="meta"), target, rho=0.5, reduction="none")
    assert value.shape == (2, 4)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"logits": torch.zeros(2)}, r"logits have shape \(2,\).* logits.unsqueeze\(1\)"),
    ({"logits": torch.zeros(2, 1, 3, dtype=torch.int64)}, "logits are torch.int64; give the floats"),
    ({"target": torch.zeros(2, 1, 3, dtype=torch.int64)}, r"target.squeeze\(1\)"),
    ({"target": torch.zeros(2, 4, dtype=torch.int64)}, r"target \(2, 4\); give logits \(N, 1, \*\)"),
    ({"target": torch.zeros(2, 3)}, r"target is torch.float32; give integers \(target.long\(\)\)"),
    ({"target": torch.tensor([[0, 0, 0], [0, 2, 0]])}, r"target is 2 at \(1, 1\), but logits with 1 channel"),
    ({"target": torch.tensor([[0, 0, 0], [0, 0, -1]])}, r"target is -1 at \(1, 2\).* use -100 for locations"),
    (
        {"target": torch.full((2, 3), 255, dtype=torch.uint8)},
        r"target is 255 at \(0, 0\).* use -100 for locations",
    ),
    ({"rho": 0.0}, r"rho is 0.0; give a number in \(0, 1\]"),
    ({"rho": 1.1}, r"rho is 1.1; give a number in \(0, 1\]"),
    ({"rho": math.nan}, r"rho is nan; give a number in \(0, 1\]"),
    ({"annotated": torch.zeros(2, 3)}, r"annotated is torch.float32; give booleans"),
    (
        {"annotated": torch.zeros(2, 1, 3, dtype=torch.bool)},
        r"annotated has shape \(2, 1, 3\), the target \(2, 3\)",
    ),
    ({"alpha": -1.0}, "alpha is -1.0; give a finite number"),
    ({"gamma": math.inf}, "gamma is inf; give a finite number"),
    ({"beta": -1.0}, "beta is -1.0; give a finite number"),
    ({"max_excluded": 0.0}, r"max_excluded is 0.0; give a number in \(0, 1\]"),
    ({"class_weights": torch.ones(3)}, r"class_weights have shape \(3,\).* need \(2,\), background first"),
    ({"class_weights": torch.tensor([1.0, -1.0])}, r"class_weights are \[1.0, -1.0\]; give .* at least 0"),
    ({"class_weights": torch.tensor([math.nan, 1.0])}, "class_weights are .*nan"),
    ({"excluded": torch.zeros(2, 3)}, r"excluded is torch.float32 of shape \(2, 3\); give booleans"),
    ({"reduction": "average"}, "reduction is 'average'; choose one of mean, sum, none"),
    ({"target": torch.zeros(2, 3, dtype=torch.int64, device="meta")}, "target is on meta, the logits on cpu"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_say_what_to_do(change: dict[str, Any], message: str, dtype: torch.dtype) -> None:
    good = {
        "logits": torch.zeros(2, 1, 3, dtype=dtype),
        "target": torch.zeros(2, 3, dtype=torch.int64),
        "rho": 0.5,
    }
    with pytest.raises(InputError, match=message):
        exclusive_cross_entropy(**{**good, **change})


def test_multi_class_target_out_of_range_raises() -> None:
    for dtype in DTYPES:
        with pytest.raises(
            InputError, match=r"target is 4 at \(0,\), but logits with 4 channel\(s\) have only 0 .* and 1…3"
        ):
            exclusive_cross_entropy(torch.zeros(1, 4, dtype=dtype), torch.tensor([4]), rho=1.0)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_all_integers_are_taken(kind: torch.dtype) -> None:
    logits, target = (
        torch.randn(2, 1, 40, generator=torch.Generator().manual_seed(0)),
        torch.zeros(2, 40, dtype=torch.long),
    )
    target[:, ::3] = 1
    expected = exclusive_cross_entropy(logits, target, rho=0.6)
    assert exclusive_cross_entropy(logits, target.to(kind), rho=0.6) == expected


def test_module_moves_its_threshold_with_progress() -> None:
    logits, target = batch(4, 1, 30)
    loss = ExclusiveCrossEntropy(rho=Linear(0.8), alpha=0.3, gamma=0.5, beta=2.0, class_weights=[1.0, 3.0])
    for progress in (0.25, 1.0):
        expected = exclusive_cross_entropy(
            logits,
            target,
            rho=0.8 * progress,
            alpha=0.3,
            gamma=0.5,
            beta=2.0,
            class_weights=torch.tensor([1.0, 3.0]),
        )
        assert loss(logits, target, progress=progress) == expected
        mask = loss.exclusion_mask(logits, target, progress=progress)
        assert mask is not None
        assert mask.any()


def test_the_exponent_of_the_threshold_can_be_annealed() -> None:
    logits, target = batch(4, 1, 30)
    loss = ExclusiveCrossEntropy(rho=0.5, beta=Ramp(start=2.0, end=0.5))
    assert loss.changes_with_progress
    for progress, tau in ((0.0, 0.25), (1.0, 0.5**0.5)):
        expected = exclusive_cross_entropy(logits, target, rho=tau, alpha=0.2, gamma=0.1)
        assert loss(logits, target, progress=progress) == expected
    with pytest.raises(InputError, match="beta is -1"):
        ExclusiveCrossEntropy(beta=lambda progress: -progress)


def test_default_is_the_preset_of_the_paper() -> None:
    default, paper = ExclusiveCrossEntropy(), ExclusiveCrossEntropy.preset("paper")
    assert repr(default) == repr(paper)
    assert (paper.rho, paper.beta, paper.alpha, paper.gamma) == (Sigmoid(0.75), 1.0, 0.2, 0.1)
    plain = ExclusiveCrossEntropy.preset("plain")
    assert (plain.rho, plain.alpha, plain.gamma) == (Sigmoid(0.75), 1.0, 0.0)


def test_unknown_preset_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"'papr'; did you mean 'paper'.* paper, plain, nki"):
        ExclusiveCrossEntropy.preset("papr")


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -1},
        {"gamma": -1},
        {"beta": -1},
        {"beta": Constant(0.5), "rho": 1.5},
        {"rho": 0.0},
        {"max_excluded": 2.0},
        {"reduction": "all"},
        {"confidence": "none"},
        {"sampling": 1.5},
        {"class_weights": [1.0]},
        {"class_weights": [1.0, -1.0]},
        {"class_weights": [1.0, math.nan]},
        {"confidence": "output", "max_excluded": 0.5},
    ],
)
def test_bad_parameters_raise_in_the_constructor(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ExclusiveCrossEntropy(**options)


def test_sampling_draws_from_torch() -> None:
    logits, target = batch(2, 1, 100)
    loss = ExclusiveCrossEntropy(sampling=0.5)
    values = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        values.append(loss(logits, target, progress=1.0).item())
    assert values[0] == values[1] != values[2]
