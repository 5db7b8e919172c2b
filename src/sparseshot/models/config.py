"""Configuration of a training run."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from sparseshot.errors import FormatError, InputError, unknown_name
from sparseshot.files import read_toml
from sparseshot.models.detect import Detect
from sparseshot.models.device import Precision
from sparseshot.models.labelling import Labelling
from sparseshot.models.segment import Segment
from sparseshot.models.task import Task


class Within(NamedTuple):
    """The lowest and the highest value of a setting that make sense."""

    lowest: float
    highest: float


TaskName = Literal["segment", "detect"]

TASKS: Mapping[str, type[Segment] | type[Detect]] = MappingProxyType({"segment": Segment, "detect": Detect})
"""The tasks by name."""

STARTER, SCRATCH = "starter", "scratch"
DEFAULT_LOSS = "adaptive"
STARTER_NAMES = {STARTER: "detect", f"{STARTER}-outlines": "segment"}
"""Names of the starters on the command line, and their tasks."""


@dataclass(frozen=True)
class TrainConfig:
    """What somebody asks of a training run, besides its images and marks; None: the run chooses.

    The defaults serve every data set and both tasks; they were tuned on TNBC alone.

    Attributes:
        task: ``segment`` (outlines) or ``detect`` (places); None: chosen by the marks.
        start: weights to start from: ``starter``, learned from synthetic tissue; ``scratch``, random ones;
            or the path of a run or a model file, kept absolute; None: the starter, if its network has the
            size of the run's.
        loss: a name of :data:`sparseshot.losses.LOSSES`; None: ``distil`` from a start that knows the marked
            cells, else ``adaptive``.
        loss_options: arguments of that loss; None: chosen by the start.
        classes: classes to learn; empty: every mark is "a cell"; None: those that the marks name, by kind, or
            the only one of them.
        by_kind: classes are kinds of found cells, told apart by a head on features; otherwise by the logits;
            None: where the start gives features.
        negative_classes: classes whose marks are certain negatives.
        colors: of the classes in results, as ``#rrggbb``; empty: a palette; None: those of the marks.
        mpp: working resolution, µm/px; None: that of the run that it starts from, or 0.5.
        width: channels of the network's first level.
        depth: number of halvings of the U-Net.
        stride: pixels per grid cell of the detector; None: those of the start, or 8.
        mark_reach: how far over its border a grid cell of the detector also learns a mark, in grid cells.
        network: ``module:function`` of a network of one's own; empty: a U-Net, or a YOLLO in detection.
        sizes: predict the size of cells too (detector).
        context: the detector looks farther around; None: as the start does.
        heights: predict heights too, which tell touching cells apart (segmentation); None: if the start does.
        kind_features: features for the kind of a cell that the network gives; None: those of the start.
        kinds: kinds that the network's own head tells apart; None: those of the start.
        steps: optimiser steps; None: chosen by the start and the number of marks.
        batch: crops per step, over all processes.
        crop_px: side of a crop in working pixels.
        learning_rate: highest rate of the one-cycle schedule; None: chosen by start and marks.
        weight_decay: of AdamW.
        near_marks: share of crops that hold a mark; the others are anywhere in tissue.
        stain_jitter: strength of the stain augmentation.
        mark_radius_um: radius of a mark without outline.
        radius_um: distance within which a detector keeps one detection; 0: 3 µm; None: chosen by the marks of
            own slides, 3 µm on benchmark sets.
        seed: of weights, crops and everything else random.
        validations: number of validations on held-out marks; None: 3, or 1 where a run goes on.
        checkpoint_every: steps between checkpoints.
        log_every: steps between lines of the log.
        precision: ``auto``, ``32`` or ``bf16``.
    """

    task: TaskName | None = None
    start: str | None = None
    loss: str | None = None
    loss_options: Mapping[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    by_kind: bool | None = None
    negative_classes: tuple[str, ...] = ()
    colors: tuple[str, ...] | None = None
    mpp: Annotated[float | None, Within(0.01, 100)] = None
    width: Annotated[int, Within(1, 1024)] = 16
    depth: Annotated[int, Within(1, 8)] = 3
    stride: Annotated[int | None, Within(1, 64)] = None
    mark_reach: Annotated[float, Within(0, 0.5)] = 0.5
    network: str = ""
    sizes: bool = False
    context: bool | None = None
    heights: bool | None = None
    kind_features: Annotated[int | None, Within(0, 64)] = None
    kinds: tuple[str, ...] | None = None
    steps: Annotated[int | None, Within(1, 10**9)] = None
    batch: Annotated[int, Within(1, 10**5)] = 8
    crop_px: Annotated[int, Within(1, 2**14)] = 128
    learning_rate: Annotated[float | None, Within(0, 1)] = None
    weight_decay: Annotated[float, Within(0, 10)] = 1e-2
    near_marks: Annotated[float, Within(0, 1)] = 0.5
    stain_jitter: Annotated[float, Within(0, 10)] = 0.25
    mark_radius_um: Annotated[float, Within(0.01, 1000)] = 3.0
    radius_um: Annotated[float | None, Within(0, 1000)] = None
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0  # it is the upper half of a 64-bit seed
    validations: Annotated[int | None, Within(1, 10**6)] = None
    checkpoint_every: Annotated[int, Within(1, 10**9)] = 100
    log_every: Annotated[int, Within(1, 10**9)] = 10
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        self._check_values()
        if self.task is not None and self.task not in TASKS:
            raise InputError(f"task is {self.task!r}; there are {', '.join(TASKS)}")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision is {self.precision!r}; there are auto, 32, bf16")
        if self.start not in {None, SCRATCH, *STARTER_NAMES}:  # a run may be resumed from another folder
            object.__setattr__(self, "start", os.path.normpath(Path(str(self.start)).absolute()))
        # A model may name a loss of somebody's own, whose module is not imported because a file names it.
        if type(self) is TrainConfig and ":" not in (self.loss or ""):
            from sparseshot.losses import make_loss  # noqa: PLC0415  a prediction needs none

            make_loss(self.loss or DEFAULT_LOSS, self.loss_options or {})
        for name, kind in (("loss_options", dict), *dict.fromkeys(_NAMES, tuple).items()):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, kind(value))
        if self.colors and len(self.colors) != len(self.classes or ("cell",)):
            raise InputError(
                f"{len(self.colors)} colors for {len(self.classes or ('cell',))} classes; give one for each"
            )
        if self.kinds and self.kind_features == 0:
            raise InputError("kinds are told apart by features, and kind_features is 0; give at least 1")
        if not all(re.fullmatch("#[0-9a-fA-F]{6}", color) for color in self.colors or ()):
            raise InputError(f"colors are {list(self.colors or ())}; write each as #rrggbb")
        stride = 1 if self.task is None else _task_of(self).stride
        if self.crop_px % stride:
            raise InputError(
                f"crop_px is {self.crop_px}, not a multiple of the stride {stride}; "
                f"take {self.crop_px // stride * stride}"
            )

    def _check_values(self) -> None:
        """Check settings that come from a TOML file or a checkpoint: types as of the defaults, and ranges."""
        for item in fields(TrainSettings):
            value = getattr(self, item.name)
            if value is None and item.name in OPEN and type(self) is TrainConfig:
                continue
            default = item.default if item.default_factory is MISSING else item.default_factory()
            kinds: tuple[type, ...] = {float: (int, float), tuple: (list, tuple), dict: (Mapping,)}.get(
                type(default), (type(default),)
            )
            is_right = isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)
            if not is_right or (
                isinstance(default, tuple) and not all(isinstance(each, str) for each in value)
            ):
                raise InputError(f"{item.name} is {value!r}; the default is {default!r}")
        for item in fields(TrainConfig):
            value = getattr(self, item.name)
            for lowest, highest in getattr(item.type, "__metadata__", ()) if value is not None else ():
                if not lowest <= value <= highest:
                    limits = f"at least {lowest:g}, at most {highest:g}"
                    raise InputError(f"{item.name} is {value}; it must be {limits}")

    @property
    def labelling(self) -> Labelling:
        """Targets of what is found: any cell, where classes are kinds."""
        return Labelling(() if self.by_kind else self.classes or (), self.negative_classes)


@dataclass(frozen=True)
class TrainSettings(TrainConfig):
    """A configuration with nothing left open; a model keeps the one it was trained with."""

    task: TaskName = "detect"
    start: str = SCRATCH
    loss: str = DEFAULT_LOSS
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    by_kind: bool = False
    colors: tuple[str, ...] = ()
    mpp: float = 0.5
    stride: int = 8
    context: bool = False
    heights: bool = False
    kind_features: int = 0
    kinds: tuple[str, ...] = ()
    steps: int = 300
    learning_rate: float = 3e-3
    radius_um: float = 0.0
    validations: int = 3

    @property
    def found_colors(self) -> tuple[str, ...]:
        """Colours of what is found, before it is told apart; empty for a palette."""
        return () if self.by_kind else self.colors

    def make_task(self) -> Task:
        """Return the task."""
        return _task_of(self)

    def to_json(self) -> str:
        """Return the settings as JSON, one a line; version 0.2 did not know all of them."""
        later = ("context", "heights", "kind_features", "kinds", "by_kind", "network")
        values = {name: value for name, value in vars(self).items() if value or name not in later}
        return json.dumps(values, indent=1)

    @classmethod
    def from_json(cls, text: str, *, source: Path | str) -> Self:
        """Read what :meth:`to_json` wrote; ``source`` is named in errors."""
        try:
            values = json.loads(text)
            known = {item.name for item in fields(cls)}
            if unknown := sorted(set(values) - known):
                raise FormatError(source, f"has a setting {unknown[0]!r} that is unknown to this version")
            return cls(**values)
        except (ValueError, TypeError, RecursionError) as error:
            raise FormatError(source, f"is not a valid configuration ({error})") from error


def _task_of(config: TrainConfig) -> Task:
    kind = TASKS[str(config.task)]
    own = {item.name: getattr(config, item.name) for item in fields(kind) if item.name != "out_channels"}
    given = {name: value for name, value in own.items() if value is not None}
    return kind(out_channels=config.labelling.out_channels, **given)


_NAMES = ("classes", "negative_classes", "colors", "kinds")
OPEN = tuple(item.name for item in fields(TrainConfig) if item.default is None)
"""Settings that a run chooses where they are not given."""


_AS_IN_PAPER = {"start": SCRATCH, "mark_reach": 0.0}

PROFILES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "standard": {},
        "quick": {**_AS_IN_PAPER, "steps": 300},
        "paper": {
            **_AS_IN_PAPER,
            "width": 64,
            "depth": 4,
            "steps": 20_000,
            "crop_px": 256,
            "validations": 20,
            "checkpoint_every": 500,
        },
    }
)
"""The defaults; and two that start with random weights and one grid cell a mark, as the paper does: minutes
on two CPU cores, or full size, a GPU's afternoon."""


def make_config(profile: str, file: Path | None, settings: Mapping[str, Any]) -> TrainConfig:
    """Return a configuration: settings override the TOML file, which overrides the profile."""
    if profile not in PROFILES:
        raise InputError(unknown_name("profile", profile, PROFILES))
    values = dict(PROFILES[profile])
    if file is not None:
        values |= read_toml(file)
    known = [item.name for item in fields(TrainConfig)]
    for name in values:
        if name not in known:
            raise InputError(f"{file or profile}: {unknown_name('setting', name, known)}")
    return TrainConfig(**{**values, **settings})
