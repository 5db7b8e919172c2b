"""Losses, forward and backward, against torch's own; and their share of a training step of both tasks."""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from ece_loss import BECEWithLogitsLoss
from torch import Tensor

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.losses import LOSSES, Hints, make_loss
from sparseshot.models.config import TrainSettings

Compute = Callable[[Tensor, Tensor], Tensor]
MEASURED_PROGRESS = 0.5


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    one_class()
    several_classes()
    training_step()
    torch.set_num_threads(threads)


def one_class() -> None:
    print("One class, 16×1×256×256 float32, one thread; extra memory at 16×1×1024×1024\n")
    authors = BECEWithLogitsLoss(epoch=150)
    base = "F.binary_cross_entropy_with_logits"

    def candidates(size_px: int) -> dict[str, Callable[[], None]]:
        logits, target = batch(1, size_px)
        floats = target.float()  # theirs take floats; making them is not their time
        computed: dict[str, Callable[[], Tensor]] = {
            base: lambda: F.binary_cross_entropy_with_logits(logits[:, 0], floats),
            **{name: partial(sparseshot_loss(name), logits, target) for name in LOSSES},
            "ece_loss, the authors' package": lambda: authors(
                logits[:, 0], floats, unannotated_mapping=lambda t: t == 0
            ).mean(),
        }
        return {name: backward(compute, logits) for name, compute in computed.items()}

    seconds = seconds_in_turns(candidates(256), rounds=31, clock=time.process_time)
    memory = {name: peak_extra_bytes(run) for name, run in candidates(1024).items()}
    print_table(
        ["loss", "ms", "× torch", "× memory of torch"],
        [
            [name, 1e3 * seconds[name], seconds[name] / seconds[base], memory[name] / memory[base]]
            for name in seconds
        ],
    )


def several_classes() -> None:
    print("\nFour channels, 16×4×256×256 float32, one thread\n")
    rows: list[list[object]] = []
    for layout in (torch.contiguous_format, torch.channels_last):
        logits, target = batch(4, 256)
        logits = logits.detach().contiguous(memory_format=layout).requires_grad_()
        computes: dict[str, Compute] = {
            "F.cross_entropy": F.cross_entropy,
            **{name: sparseshot_loss(name) for name in LOSSES},
        }
        seconds = seconds_in_turns(
            {name: backward(partial(compute, logits, target), logits) for name, compute in computes.items()},
            rounds=9,
            clock=time.process_time,
        )
        name_of_layout = str(layout).removeprefix("torch.").replace("_", " ")
        rows += [
            [name, name_of_layout, 1e3 * value, value / seconds["F.cross_entropy"]]
            for name, value in seconds.items()
        ]
    print_table(["loss", "memory", "ms", "× torch"], rows)


def training_step() -> None:
    print("\nShare of a training step, 8 crops of 128×128, one thread\n")
    rows: list[list[object]] = []
    for task_name in ("segment", "detect"):
        task = TrainSettings(task=task_name).make_task()
        model = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.AdamW(model.parameters())
        images = torch.rand(8, 3, 128, 128).contiguous(memory_format=torch.channels_last)
        places = 128 // task.stride
        target = (torch.rand(8, places, places) < 0.05).long()
        with torch.no_grad():
            logits = task.logits(model(images)).clone()
        logits.requires_grad_()

        def step() -> None:
            optimiser.zero_grad()  # noqa: B023  used in this turn only
            value = binary_cross_entropy(task.logits(model(images)), target)  # noqa: B023
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()  # noqa: B023

        seconds = seconds_in_turns(
            {
                "step": step,
                **{
                    name: backward(partial(sparseshot_loss(name), logits, target), logits)
                    for name in ("ece", "adaptive")
                },
            },
            rounds=41,
            clock=time.process_time,
        )
        step_seconds = seconds.pop("step")
        rows += [
            [task_name, name, 1e3 * step_seconds, 1e3 * value, f"{value / step_seconds:.1%}"]
            for name, value in seconds.items()
        ]
    print_table(["task", "loss", "ms a step", "ms of the loss", "share"], rows)


def batch(channels: int, size_px: int) -> tuple[Tensor, Tensor]:
    logits = torch.randn(16, channels, size_px, size_px, requires_grad=True)
    marked = torch.rand(16, size_px, size_px) < 0.05
    return logits, marked * torch.randint(1, max(channels, 2), (16, size_px, size_px))


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits[:, 0], target.float())


def sparseshot_loss(name: str) -> Compute:
    loss = make_loss(name, {"prior": 0.2} if name == "nnpu" else {})

    def compute(logits: Tensor, target: Tensor) -> Tensor:
        hints = Hints(
            truth=target, teacher_logits=logits.detach() if "teacher_logits" in loss.wants else None
        )
        return loss(logits, target, progress=MEASURED_PROGRESS, hints=hints)

    return compute


def backward(compute: Callable[[], Tensor], logits: Tensor) -> Callable[[], None]:
    def run() -> None:
        logits.grad = None
        compute().backward()  # type: ignore[no-untyped-call]

    return run


def peak_extra_bytes(run: Callable[[], None]) -> float:
    """Return how far the memory of this process rises above where it stands; NaN off Linux."""
    if not sys.platform.startswith("linux"):
        return float("nan")
    run()
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to what is in use now
    before = memory_bytes("VmRSS")
    run()
    return memory_bytes("VmHWM") - before


def memory_bytes(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(field))
