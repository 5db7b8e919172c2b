"""What a training run does. It is decided here and nowhere else.

A :class:`TrainRequest` is what somebody asks for. Where it is silent, :func:`resolve` decides by the marks
and by the model that the run starts from. The :class:`TrainRecipe` that comes out leaves nothing open.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sparseshot.cells import Cells
from sparseshot.errors import (
    DataNotFoundError,
    FormatError,
    InputError,
    SparseshotError,
    TrainingWarning,
    counted,
)
from sparseshot.files import read_as, read_json, read_text
from sparseshot.losses.adaptive import TEACHER_FROM, options_to_continue
from sparseshot.models.config import (
    OPEN,
    SCRATCH,
    STARTER,
    STARTER_NAMES,
    TaskName,
    TrainConfig,
    TrainSettings,
)
from sparseshot.models.kinds import named_kinds, with_one_spelling
from sparseshot.models.labelling import REJECTED
from sparseshot.training.annotated import TrainingData
from sparseshot.training.lineage import Parent, Start
from sparseshot.training.mark_checks import (
    check_marks,
    classes_of_marks,
    colors_of_marks,
    describe_classes,
    describe_kinds,
    suppression_radius_um,
    task_of_marks,
)
from sparseshot.work.folder import CONFIG, RECIPE, SOURCE

DISTILLATION = "distil"
"""Loss from a start that knows the marked cells."""

_MANY_MARKS = 3000
_KNOWN = 0.6
"""Certainty of the marks from which a start knows the cells: nuclei in H&E 0.6 to 0.9, smears 0.2 to 0.4."""
_SCRATCH_STEPS, _SCRATCH_RATE = 300, 3e-3
_RATE, _LOW_RATE = 1e-3, 5e-4
"""Highest learning rates: lower where there is something to keep and little to learn from."""


@dataclass(frozen=True)
class WeakSupervision:
    """Number of rounds, and the confidence at which a prediction becomes a mark.

    Attributes:
        rounds: trainings, each from the same start; 1 is ordinary training.
        tau: predictions with p > tau in unannotated places become positives of the next round.
    """

    rounds: int = 2
    tau: float = 0.75

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds is {self.rounds}; give at least 1")
        if not 0 < self.tau < 1:
            raise InputError(f"tau is {self.tau}; give a probability between 0 and 1")


@dataclass(frozen=True)
class TrainRequest:
    """What somebody asks for.

    Attributes:
        config: settings; None where the run chooses.
        data: what to train on.
        weak: rounds of weak supervision.
        minutes: about how long to train, where the configuration leaves the steps open.
        most_minutes: about how long to train at most, in that case.
    """

    config: TrainConfig
    data: TrainingData
    weak: WeakSupervision = field(default_factory=lambda: WeakSupervision(1))
    minutes: float | None = None
    most_minutes: float | None = None


@dataclass(frozen=True)
class TrainRecipe:
    """Everything that decides the weights of a run.

    Attributes:
        request: what was asked for.
        settings: what is done.
        files: hashes of the user's own slides and marks, by path.
        parents: the models that it continues, the nearest first.
        kind: of work.
    """

    request: TrainRequest
    settings: TrainSettings
    files: Mapping[str, str] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    kind: Literal["train"] = "train"

    def difference(self, request: TrainRequest, files: Mapping[str, str]) -> str:
        """Return how a request asks for another run than this; empty if for the same.

        What was left open may be left open again, or given as it was chosen.
        """
        mine, asked = self.request, request
        chosen, before = vars(self.settings), vars(mine.config)
        parts = [
            f"{name} {chosen[name]!r} instead of {'a choice by the marks' if value is None else repr(value)}"
            for name, value in vars(asked.config).items()
            if value != before[name] and value != chosen[name]
        ]
        if parts:
            return f"another configuration ({', '.join(parts)})"
        if (mine.data, mine.weak) != (asked.data, asked.weak):
            return "other images, marks or rounds"
        changed = [file for file, digest in files.items() if self.files.get(file, digest) != digest]
        return f"another content of {', '.join(changed)}, which can be restored" if changed else ""


def resolve(
    request: TrainRequest,
    marks: Sequence[Cells],
    start: Start | None,
    *,
    files: Mapping[str, str] | None = None,
    affordable_steps: Callable[[TrainSettings], int] | None = None,
) -> tuple[TrainRecipe, list[str]]:
    """Decide what a request leaves open; return the recipe, and sentences that say what was decided.

    Args:
        request: what is asked for.
        marks: of each training slide.
        start: the model that the request names, or the starter; None for random weights.
        files: hashes of the user's own files.
        affordable_steps: measures how many steps fit into the minutes asked for.
    """
    config, own_marks, said = request.config, request.data.dataset is None, list[str]()
    positives = [config.labelling.positives(cells) for cells in marks]
    task, reason = task_of(config, marks)
    if config.task is None:
        said.append(f"task {task}, because {reason}; --task overrides it")
    radius_um, classes, colors = config.radius_um, config.classes, config.colors
    if radius_um is None and task == "detect" and own_marks:
        radius_um = suppression_radius_um(positives)
        said.append(f"one detection within {radius_um:g} µm, by the marks; --radius-um overrides it")
    if own_marks:
        classes = classes_of_marks(config.labelling, marks) if classes is None else classes
        colors = colors_of_marks(classes, marks) if colors is None else colors
    known: dict[str, Any] = {
        "task": task,
        "radius_um": radius_um or 0.0,
        "classes": classes or (),
        "colors": colors or (),
    }
    if start is not None:
        known["stride"] = config.stride or start.model.config.stride
    given = {name: value for name, value in vars(config).items() if value is not None}
    settings = TrainSettings(**(given | known))
    if kinds := _kinds(config, marks, _fitting(start, settings, asked=config.start)[0], own_marks=own_marks):
        colors = colors_of_marks(kinds, marks) if config.colors is None else config.colors
        settings = replace(settings, by_kind=True, classes=kinds, colors=colors)
        said.append(describe_kinds(kinds, marks))
    else:
        said.append(describe_classes(settings.labelling, marks, own_marks=own_marks))

    start, sentence = _fitting(start, settings, asked=config.start)
    if start is not None and start.is_run:
        said.append(f"marks since then: {start.changes or 'unknown, because that run kept none'}")
    number = sum(len(settings.labelling.positives(cells)) for cells in marks)
    chosen = _by_start(settings, start, number, asked=config.start)
    if start is not None and config.loss is None and config.loss_options is None and _knows(start, settings):
        chosen |= {"loss": DISTILLATION, "loss_options": {"threshold": start.model.threshold}}
        sentence += ", which knows these cells and is held on to"
    if affordable_steps is not None and config.steps is None:
        steps = affordable_steps(settings)
        chosen["steps"] = min(steps, chosen["steps"]) if request.minutes is None else steps
    settings = replace(settings, **{name: value for name, value in chosen.items() if name not in given})
    if settings.mpp != chosen.get("mpp", settings.mpp):
        warnings.warn(
            f"{config.start} works at {chosen['mpp']:g} µm/px and this run at {settings.mpp:g}, where cells "
            "have another size; leave mpp out to keep that of the model",
            TrainingWarning,
            stacklevel=2,
        )
    said.append(f"{sentence}, {counted(settings.steps, 'step')}")
    parents = () if start is None else start.parents
    return TrainRecipe(request, settings, files or {}, parents), said


def _kinds(
    config: TrainConfig, marks: Sequence[Cells], start: Start | None, *, own_marks: bool
) -> tuple[str, ...]:
    """Return the classes to learn as kinds: those asked for, or named by the marks; none without features.

    A benchmark set with a single class is a set of cells.
    """
    if start is None or not start.model.config.kind_features or config.by_kind is False:
        return ()
    if config.classes is not None:
        return config.classes
    kinds = named_kinds(with_one_spelling(marks), leave_out=(REJECTED, *config.negative_classes))
    return kinds if own_marks or len(kinds) > 1 else ()


def task_of(config: TrainConfig, marks: Sequence[Cells]) -> tuple[TaskName, str]:
    """Return the task of a run, and why; raise if there is nothing to learn from."""
    check_marks(marks, config.labelling)
    if config.task is not None:
        return config.task, "it was given"
    return task_of_marks([config.labelling.positives(cells) for cells in marks])


def _fitting(start: Start | None, settings: TrainSettings, *, asked: str | None) -> tuple[Start | None, str]:
    """Return the start if its network has the task and size of the run, and a sentence that names it.

    A starter that was not asked for gives way to random weights; other models raise.
    """
    if start is None:
        return None, "from random weights"
    model, task = start.model, settings.task
    if settings.network != model.config.network:
        if asked is None:
            return None, f"from random weights of {settings.network}"
        raise SparseshotError(
            f"{asked} has the network {model.config.network or 'of the package'}, this run "
            f"{settings.network or 'that of the package'}; give the same, or --from scratch"
        )
    if model.config.task != task:
        raise SparseshotError(
            f"{asked} is a model for the task {model.config.task}, this run has the task {task}; "
            f"start from another model, or give --task {model.config.task}"
        )
    if settings.network:
        return start, f"from {asked}"
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in settings.make_task().network().state_dict().items()}
    body = {name: shape for name, shape in shapes.items() if not name.startswith("head.")}
    if any(name not in model.weights or model.weights[name].shape != body[name] for name in body):
        if asked is None:
            reason = "because the starter is of the default size of the network only"
            return None, f"from random weights, {reason}"
        raise SparseshotError(
            f"{asked} has another size of the network (width {model.config.width}, depth "
            f"{model.config.depth}, stride {model.config.stride}); give the same, or --from scratch"
        )
    name = "the starter" if asked in {None, STARTER} else asked
    if not model.has_classes(settings.labelling.names):
        classes = ", ".join(settings.labelling.names)
        return start, f"from {name}, with a new last layer for the classes {classes}"
    return start, f"from {name}"


def _knows(start: Start, settings: TrainSettings) -> bool:
    """Return whether a start finds the marked cells already, so that it can teach the unmarked ones.

    A run knows its own marks in any case, so it counts if what it started from knew them.
    """
    model = start.model
    if not model.has_classes(settings.labelling.names) or model.threshold is None:
        return False
    return model.config.loss == DISTILLATION if start.is_run else start.certainty >= _KNOWN


def _by_start(
    settings: TrainSettings, start: Start | None, marks: int, *, asked: str | None
) -> dict[str, Any]:
    """Return the settings that the start decides where they are not given."""
    if start is None:
        scratch = {"start": SCRATCH, "stride": TrainSettings.stride}
        return scratch | {"steps": _SCRATCH_STEPS, "learning_rate": _SCRATCH_RATE}
    model = start.model
    chosen: dict[str, Any] = {
        "start": STARTER,
        "steps": steps_for(marks),
        "learning_rate": _LOW_RATE if marks <= _MANY_MARKS else _RATE,
    }
    own = model.config
    chosen |= {"context": own.context, "heights": own.heights}
    if settings.kind_features == 0:
        chosen |= {"kind_features": own.kind_features, "kinds": own.kinds}
    if asked not in {None, *STARTER_NAMES}:  # a starter serves any resolution
        chosen["mpp"] = model.mpp
    if model.has_classes(settings.labelling.names):
        options: Mapping[str, Any] = {}
        if start.changes is not None:
            share = None if model.evidence is None else model.evidence.marked_share
            options = options_to_continue(share)
            few = {"steps": continued_steps(start.changes.total), "validations": 1}
            chosen |= few | {"learning_rate": _LOW_RATE}
        elif settings.make_task().paints_marks:
            options = {"teacher_from": TEACHER_FROM}
        if settings.loss == DISTILLATION and model.threshold is not None:
            chosen["loss_options"] = {"threshold": model.threshold}
        else:
            chosen["loss_options"] = options if settings.loss == "adaptive" else {}
    return chosen


def steps_for(marks: int) -> int:
    """Return the optimiser steps that a number of marks is worth to a model that knows cells.

    >>> steps_for(100), steps_for(5000)
    (200, 300)
    """
    return int(min(300, max(150, 20 * math.sqrt(marks))))


def continued_steps(changed: int) -> int:
    """Return the optimiser steps that new, moved and removed marks are worth in a run that goes on.

    >>> continued_steps(10), continued_steps(100), continued_steps(5000)
    (25, 50, 150)
    """
    return int(min(150, max(25, 5 * math.sqrt(changed))))


def read_run(folder: Path) -> TrainRecipe | None:
    """Return the recipe of a run, also of one that version 0.2 began; None if there is none."""
    if (folder / RECIPE).is_file():
        return read_as(folder / RECIPE, TrainRecipe)
    if not ((folder / CONFIG).is_file() and (folder / SOURCE).is_file()):
        return None
    settings = TrainSettings.from_json(read_text(folder / CONFIG), source=folder / CONFIG)
    data, source = TrainingData.read(folder / SOURCE), read_json(folder / SOURCE)
    try:
        given = source.get("given", ["classes"] if len(settings.classes) > 1 else [])
        asked = {name: value for name, value in vars(settings).items() if name in given or name not in OPEN}
        weak = WeakSupervision(**source.get("weak", {"rounds": 1}))
        parents = tuple(Parent(each["path"], each["fingerprint"]) for each in source.get("parents", []))
        files = dict(source.get("fingerprint", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(folder / SOURCE, f"does not say how the run was begun ({error!r})") from error
    return TrainRecipe(TrainRequest(TrainConfig(**asked), data, weak), settings, files, parents)


def run_data(run: Path) -> TrainingData:
    """Return what a run was trained on."""
    folder = run if run.is_dir() else run.parent
    recipe = read_run(folder)
    if recipe is None:
        raise DataNotFoundError(
            folder / RECIPE, "is missing, so say what to evaluate on: --dataset or --images"
        )
    return recipe.request.data
