"""What a run starts from: the starter, another run, or random weights; and how long it then learns."""

import math
import time
import warnings
from dataclasses import replace

import torch
from torch import nn

from sparseshot.errors import SparseshotError, TrainingWarning
from sparseshot.losses import make_loss
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, STARTER, STARTER_NAMES, TrainConfig
from sparseshot.models.device import uses_bfloat16
from sparseshot.models.labelling import Labelling
from sparseshot.models.model_files import load_model, load_starter

_HEAD = "head."
_MANY_MARKS = 3000
_SHARE_OF_STEPS = 0.8
"""Share of the time of a run that goes into steps; the rest is validation."""


def find_start(config: TrainConfig) -> tuple[Checkpoint | None, str]:
    """Return the model that a run starts from, None for random weights, and a sentence that says which.

    A starter of another size than the network of the run is not used. A model that was named raises.
    """
    if config.start == SCRATCH:
        return None, "from random weights"
    task = config.task
    start = load_starter(task) if config.start == STARTER else load_model(config.start)
    if start.config.task != task:
        raise SparseshotError(
            f"{config.start} is a model for the task {start.config.task}, this run has the task {task}; "
            f"start from another model, or give --task {start.config.task}"
        )
    body = {name: shape for name, shape in _shapes(config).items() if not name.startswith(_HEAD)}
    fits = all(name in start.weights and start.weights[name].shape == body[name] for name in body)
    if not fits and config.start == STARTER:
        return None, "from random weights, because the starter is of the default size of the network only"
    if not fits:
        raise SparseshotError(
            f"{config.start} has another size of the network (width {start.config.width}, depth "
            f"{start.config.depth}, stride {start.config.stride}); give the same, or --from scratch"
        )
    name = "the starter" if config.start == STARTER else config.start
    if not has_same_classes(start, config):
        classes = ", ".join(config.labelling.names)
        return start, f"from {name}, with a new last layer for the classes {classes}"
    return start, f"from {name}"


def has_same_classes(start: Checkpoint, config: TrainConfig) -> bool:
    """Return whether the last layer of a model serves the classes of a run.

    One that finds cells of any kind, as the starter does, serves to begin with one class, and the reverse.
    """
    own, any_cell = config.labelling.names, Labelling().names
    return start.classes == own or (len(start.classes) == len(own) == 1 and any_cell in {start.classes, own})


def at_resolution_of(start: Checkpoint, config: TrainConfig) -> TrainConfig:
    """Return the configuration at the resolution of the run that it starts from.

    A resolution that was given stays, with a warning. A starter serves any resolution.
    """
    if config.start in STARTER_NAMES or start.mpp == config.mpp:
        return config
    if config.mpp == TrainConfig().mpp:
        return replace(config, mpp=start.mpp)
    warnings.warn(
        f"{config.start} works at {start.mpp:g} µm/px and this run at {config.mpp:g}, where cells have "
        "another size; leave mpp out to keep that of the model",
        TrainingWarning,
        stacklevel=2,
    )
    return config


def with_kinds_of(start: Checkpoint, config: TrainConfig) -> TrainConfig:
    """Return the configuration with the features and kinds of the model it starts from, unless given."""
    if config.kind_features:
        return config
    return replace(config, kind_features=start.config.kind_features, kinds=start.config.kinds)


def begin_from(start: Checkpoint, network: nn.Module, config: TrainConfig) -> None:
    """Copy the weights of a model; a last layer of other classes stays random."""
    own, same_classes = network.state_dict(), has_same_classes(start, config)
    kept = {
        name: weight
        for name, weight in start.weights.items()
        if name in own and own[name].shape == weight.shape and (same_classes or not name.startswith(_HEAD))
    }
    network.load_state_dict(own | kept)


def _shapes(config: TrainConfig) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return {name: weight.shape for name, weight in config.make_task().network().state_dict().items()}


def rate_for(marks: int, *, from_scratch: bool) -> float:
    """Return the highest learning rate: lower where there is something to keep and little to learn from."""
    if from_scratch:
        return 3e-3
    return 5e-4 if marks <= _MANY_MARKS else 1e-3


def steps_for(marks: int, *, from_scratch: bool) -> int:
    """Return the optimiser steps that a number of marks is worth.

    >>> steps_for(100, from_scratch=False), steps_for(5000, from_scratch=False)
    (200, 300)
    """
    return 300 if from_scratch else int(min(300, max(150, 20 * math.sqrt(marks))))


def continued_steps(changed: int) -> int:
    """Return the optimiser steps that new, moved and removed marks are worth in a run that goes on.

    >>> continued_steps(10), continued_steps(100), continued_steps(5000)
    (25, 50, 150)
    """
    return int(min(150, max(25, 5 * math.sqrt(changed))))


def continue_run(config: TrainConfig, parent: Checkpoint, changed: int) -> TrainConfig:
    """Return the configuration of a run that goes on from another one, with what is not given chosen.

    Args:
        config: of the run.
        parent: the model to go on from.
        changed: number of marks that changed since.
    """
    share = None if parent.evidence is None else parent.evidence.marked_share
    options = make_loss(config.loss, config.loss_options).continued(share)
    return replace(
        config,
        steps=config.steps or continued_steps(changed),
        learning_rate=config.learning_rate or rate_for(0, from_scratch=False),
        validations=1 if config.validations == TrainConfig().validations else config.validations,
        loss_options=config.loss_options or options,
    )


def fine_tune(config: TrainConfig, *, knows_cells: bool) -> TrainConfig:
    """Return the configuration with the options of its loss for a start that knows cells, unless given."""
    if not knows_cells or config.loss_options:
        return config
    options = make_loss(config.loss).fine_tuned(areas=config.make_task().paints_marks)
    return replace(config, loss_options=options)


def steps_in(minutes: float, config: TrainConfig, device: torch.device | None = None) -> int:
    """Return the optimiser steps that fit into a time on a device, by a trial of a few."""
    device = device or torch.device("cpu")
    network = config.make_task().network().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = torch.rand(config.batch, 3, config.crop_px, config.crop_px, device=device)
    image = image.contiguous(memory_format=torch.channels_last)
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=uses_bfloat16(config.precision, device)):
            output = network(image)
        output.float().square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return max(20, int(_SHARE_OF_STEPS * 60 * minutes / min(seconds)))
