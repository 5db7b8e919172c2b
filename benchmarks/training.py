"""Training throughput: the real loop against a bare loop on tensors in memory."""

import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.losses import make_loss
from sparseshot.models.config import TrainSettings
from sparseshot.models.inference import network_input
from sparseshot.training.annotated import AnnotatedSlide
from sparseshot.training.held_out import prepare
from sparseshot.training.logs import numbers_of, read_log
from sparseshot.training.loop import train

STEPS = 30


def bare_seconds(config: TrainSettings) -> float:
    """Return the seconds of a loop that repeats one batch in memory and does nothing else."""
    torch.manual_seed(0)
    task = config.make_task()
    network = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    image = torch.randint(0, 256, (config.batch, 3, config.crop_px, config.crop_px), dtype=torch.uint8)
    image = image.contiguous(memory_format=torch.channels_last)
    cells = config.crop_px // task.stride
    target = (torch.rand(config.batch, cells, cells) < 0.1).long()
    loss = make_loss(config.loss)
    start = 0.0
    for step in range(config.steps + 3):
        if step == 3:  # the first steps allocate memory
            start = time.perf_counter()
        value = loss(task.logits(network(network_input(image))), target, progress=step / (config.steps + 3))
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        optimizer.step()
    return time.perf_counter() - start


def loop_seconds(config: TrainSettings, marked: AnnotatedSlide) -> float:
    """Return the seconds of the real loop for as many steps.

    They are taken from its log. The first line, which includes the start of the run, does not count.
    """
    canvases, _ = prepare([marked], [marked], config)
    with tempfile.TemporaryDirectory() as folder:
        train(config, canvases, [], Path(folder))
        speeds = numbers_of(read_log(Path(folder, "log.csv"))[1:], "crops_per_second")
    return config.steps * config.batch * sum(1 / speed for speed in speeds) / len(speeds)


def step_seconds(config: TrainSettings) -> dict[str, float]:
    """Return the seconds of a forward and backward pass by loss."""
    torch.manual_seed(0)
    task = config.make_task()
    network = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = torch.randn(config.batch, 3, config.crop_px, config.crop_px)
    image = image.contiguous(memory_format=torch.channels_last)
    places = config.crop_px // 8
    target = (torch.rand(config.batch, places, places) < 0.1).long()
    if task.stride == 1:  # squares of eight by eight pixels
        target = target.repeat_interleave(8, 1).repeat_interleave(8, 2)
    losses = {name: make_loss(name) for name in ("ece", "adaptive")}

    def logits() -> torch.Tensor:
        return task.logits(network(image))

    def with_loss(name: str) -> None:
        torch.autograd.backward(losses[name](logits(), target, progress=0.5))

    def with_bce() -> None:
        value = F.binary_cross_entropy_with_logits(logits()[:, 0], target.float())
        torch.autograd.backward(value)

    ways = {"bce": with_bce, "ece": lambda: with_loss("ece"), "adaptive": lambda: with_loss("adaptive")}
    return seconds_in_turns(ways, rounds=40)


def main() -> None:
    warnings.simplefilter("ignore")
    tissue = SyntheticTissue(seed=0, size_px=(2048, 2048))
    marked = AnnotatedSlide(tissue, tissue.cells(outlines=True))
    rows = []
    for task in ("segment", "detect"):
        config = TrainSettings(task=task, steps=STEPS, validations=1, checkpoint_every=10**6)
        ours, bare = [], []
        for _ in range(3):  # the fastest of three, in turns: other processes only slow a run down
            ours.append(loop_seconds(config, marked))
            bare.append(bare_seconds(config))
        rows.append((task, STEPS * config.batch / min(bare), min(bare) / min(ours)))
    print_table(("task", "bare loop, crops/s", "speed relative to the bare loop"), rows)

    print()
    steps = {task: step_seconds(TrainSettings(task=task)) for task in ("segment", "detect")}
    ratios = [(task, *(t / times["bce"] for t in times.values())) for task, times in steps.items()]
    print_table(("step time", "cross-entropy of torch", "ece", "adaptive"), ratios)
