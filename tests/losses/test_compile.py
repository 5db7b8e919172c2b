"""torch.compile with fullgraph=True: the same numbers, and no new graph for each progress."""

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparseshot.losses import (
    LOSSES,
    EarlyLearningRegularisation,
    ExclusiveCrossEntropy,
    Hints,
    Linear,
    Logistic,
    Ramp,
    make_loss,
)

# Inductor writes C++; where there is no compiler, the graph is still traced and run.
BACKEND = "inductor" if shutil.which("c++") or shutil.which("g++") else "aot_eager"


def batch(channels: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, channels, 8, 8, generator=generator).requires_grad_()
    target = torch.randint(-1, max(channels, 2), (2, 8, 8), generator=generator)
    return logits, torch.where(target < 0, -100, target)


def results(loss: Any, logits: Tensor, target: Tensor, **more: Any) -> tuple[Tensor, Tensor]:
    value = loss(logits, target, **{"progress": 1.0, **more})
    return value.detach(), torch.autograd.grad(value, logits)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor uses what torch itself has deprecated
def test_compiled_exclusive_cross_entropy_gives_the_same_numbers() -> None:
    torch.compiler.reset()
    loss = ExclusiveCrossEntropy()
    compiled = torch.compile(loss, fullgraph=True, backend=BACKEND)
    logits, target = batch(3)
    torch.testing.assert_close(
        results(compiled, logits, target, progress=0.5),
        results(loss, logits, target, progress=0.5),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "adaptive"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_loss_can_be_traced_whole(name: str, channels: int) -> None:
    """Except adaptive, and nnpu without a prior: their estimates depend on values of the batch."""
    torch.compiler.reset()
    options: dict[str, Any] = {"nnpu": {"prior": 0.3}, "ece-nki": {"sampling": 1.0}}
    loss = make_loss(name, options.get(name, {}))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    logits, target = batch(channels)
    hints = Hints(truth=target.clamp(min=0), teacher_logits=logits.detach().flip(0))
    torch.testing.assert_close(
        results(compiled, logits, target, hints=hints),
        results(loss, logits, target, hints=hints),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["adaptive", "nnpu"])
@pytest.mark.parametrize("channels", [1, 3])
def test_losses_that_estimate_run_uncompiled_and_refuse_one_graph(name: str, channels: int) -> None:
    torch.compiler.reset()
    eager, compiled = make_loss(name), make_loss(name)
    step = torch.compile(compiled, backend="aot_eager")
    logits, target = batch(channels)
    for progress in (0.0, 0.5, 1.0):
        torch.testing.assert_close(
            results(step, logits, target, progress=progress),
            results(eager, logits, target, progress=progress),
            rtol=1e-5,
            atol=1e-6,
        )
    assert str(eager.log_values()) == str(compiled.log_values())  # nan equals nan
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(make_loss(name), fullgraph=True, backend="aot_eager")(logits, target)


@pytest.mark.parametrize(
    "loss",
    [
        ExclusiveCrossEntropy(),
        ExclusiveCrossEntropy(rho=Linear(), beta=1.5),
        ExclusiveCrossEntropy(rho=0.5, beta=Ramp(start=2.0, end=0.5)),
        ExclusiveCrossEntropy(rho=Logistic(height=0.5, centre=0.5, width=0.1), max_excluded=0.5),
    ],
)
def test_progress_does_not_recompile(loss: ExclusiveCrossEntropy) -> None:
    torch.compiler.reset()
    graphs = 0

    def counting(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    compiled = torch.compile(loss, fullgraph=True, backend=counting)
    logits, target = batch(1)
    for step in range(20):
        torch.testing.assert_close(
            compiled(logits, target, progress=step / 19), loss(logits, target, progress=step / 19)
        )
    assert graphs <= 4


def test_a_model_and_its_loss_compile_together() -> None:
    torch.compiler.reset()
    model, loss = nn.Conv2d(1, 1, 3, padding=1), EarlyLearningRegularisation()
    images, target = torch.randn(2, 1, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(images: Tensor, target: Tensor) -> Tensor:
        return loss(model(images), target)

    torch.testing.assert_close(step(images, target), loss(model(images), target))
