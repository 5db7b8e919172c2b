"""Configuration of a training run."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

from sparseshot.errors import FormatError, InputError
from sparseshot.losses import make_loss
from sparseshot.models.device import Precision
from sparseshot.models.labelling import Labelling
from sparseshot.models.task import Task
from sparseshot.models.tasks import TASKS

_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "mpp": (0.01, 100),
        "width": (1, 1024),
        "depth": (1, 8),
        "stride": (1, 64),
        "mark_reach": (0, 0.5),
        "kind_features": (0, 64),
        "steps": (0, 10**9),
        "batch": (1, 10**5),
        "crop_px": (1, 2**14),
        "learning_rate": (0, 1),
        "weight_decay": (0, 10),
        "near_marks": (0, 1),
        "stain_jitter": (0, 10),
        "mark_radius_um": (0.01, 1000),
        "radius_um": (0, 1000),
        "seed": (0, 2**31 - 1),  # training puts it into the upper half of a 64-bit seed
        "validations": (1, 10**6),
        "checkpoint_every": (1, 10**9),
        "log_every": (1, 10**9),
    }
)
"""Lowest and highest values that make sense."""

STARTER, SCRATCH = "starter", "scratch"
STARTER_NAMES = {STARTER: "detect", f"{STARTER}-outlines": "segment"}
"""Names of the starters on the command line, and their tasks."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run besides its images and marks.

    The defaults serve every data set and both tasks; they were tuned on TNBC alone.

    Attributes:
        task: ``segment`` (outlines), ``detect`` (places), or ``auto``: chosen by the marks.
        start: weights to start from: ``starter``, learned from synthetic tissue; ``scratch``, random ones;
            or the path of a run or a model file, kept absolute.
        loss: a name of :data:`sparseshot.losses.LOSSES`.
        loss_options: arguments of that loss.
        classes: classes to learn; empty: every mark is "a cell".
        negative_classes: classes whose marks are certain negatives.
        colors: of the classes in results, as ``#rrggbb``; empty: those of the marks, or a palette.
        mpp: working resolution, µm/px.
        width: channels of the network's first level.
        depth: number of halvings of the U-Net.
        stride: pixels per grid cell of the detector.
        mark_reach: how far over its border a grid cell of the detector also learns a mark, in grid cells.
        sizes: predict the size of cells too (detector).
        kind_features: features for the kind of a cell that the network gives; 0: those of the start.
        kinds: kinds that the network's own head tells apart; empty: those of the start.
        steps: optimiser steps; 0: chosen by the start and the number of marks.
        batch: crops per step, over all processes.
        crop_px: side of a crop in working pixels.
        learning_rate: highest rate of the one-cycle schedule; 0: chosen by the start.
        weight_decay: of AdamW.
        near_marks: share of crops that hold a mark; the others are anywhere in tissue.
        stain_jitter: strength of the stain augmentation.
        mark_radius_um: radius of a mark without outline.
        radius_um: distance within which a detector keeps one detection; 0: chosen by the marks of own slides,
            3 µm on benchmark sets.
        seed: of weights, crops and everything else random.
        validations: number of validations on held-out marks.
        checkpoint_every: steps between checkpoints.
        log_every: steps between lines of the log.
        precision: ``auto``, ``32`` or ``bf16``.
    """

    task: Literal["auto", "segment", "detect"] = "auto"
    start: str = STARTER
    loss: str = "adaptive"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    negative_classes: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    mpp: float = 0.5
    width: int = 16
    depth: int = 3
    stride: int = 8
    mark_reach: float = 0.5
    sizes: bool = False
    kind_features: int = 0
    kinds: tuple[str, ...] = ()
    steps: int = 0
    batch: int = 8
    crop_px: int = 128
    learning_rate: float = 0.0
    weight_decay: float = 1e-2
    near_marks: float = 0.5
    stain_jitter: float = 0.25
    mark_radius_um: float = 3.0
    radius_um: float = 0.0
    seed: int = 0
    validations: int = 3
    checkpoint_every: int = 100
    log_every: int = 10
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        self._check_types()
        if self.task not in {"auto", *TASKS}:
            raise InputError(f"task is {self.task!r}; there are auto, {', '.join(TASKS)}")
        if self.precision not in get_args(Precision):
            raise InputError(f"precision is {self.precision!r}; there are auto, 32, bf16")
        for name, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, name) <= highest:
                raise InputError(
                    f"{name} is {getattr(self, name)}; it must be at least {lowest:g}, at most {highest:g}"
                )
        if self.start not in {SCRATCH, *STARTER_NAMES}:  # a run may be resumed from another folder
            object.__setattr__(self, "start", os.path.normpath(Path(self.start).absolute()))
        make_loss(self.loss, self.loss_options)  # fails here, before any image is loaded
        object.__setattr__(self, "loss_options", MappingProxyType(dict(self.loss_options)))
        for name in ("classes", "negative_classes", "colors", "kinds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.colors and len(self.colors) != len(self.labelling.names):
            raise InputError(
                f"{len(self.colors)} colors for {len(self.labelling.names)} classes; give one for each"
            )
        if self.kinds and not self.kind_features:
            raise InputError("kinds are told apart by features, and kind_features is 0; give at least 1")
        if not all(re.fullmatch("#[0-9a-fA-F]{6}", color) for color in self.colors):
            raise InputError(f"colors are {list(self.colors)}; write each as #rrggbb")
        stride = 1 if self.task == "auto" else self.make_task().stride
        if self.crop_px % stride:
            raise InputError(
                f"crop_px is {self.crop_px}, not a multiple of the stride {stride}; "
                f"take {self.crop_px // stride * stride}"
            )

    def _check_types(self) -> None:
        """Check settings that come from a TOML file or a checkpoint, against the types of the defaults."""
        for item in fields(self):
            value = getattr(self, item.name)
            default = {} if item.default is MISSING else item.default
            kinds: tuple[type, ...] = {float: (int, float), tuple: (list, tuple), dict: (Mapping,)}.get(
                type(default), (type(default),)
            )
            is_right = isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)
            if not is_right or (
                isinstance(default, tuple) and not all(isinstance(each, str) for each in value)
            ):
                raise InputError(f"{item.name} is {value!r}; the default is {default!r}")

    @property
    def labelling(self) -> Labelling:
        """Targets of the classes."""
        return Labelling(self.classes, self.negative_classes)

    def make_task(self) -> Task:
        """Return the task."""
        if self.task == "auto":
            raise InputError(f"task is auto, which only train_run resolves; choose {' or '.join(TASKS)}")
        kind = TASKS[self.task]
        own = {item.name: getattr(self, item.name) for item in fields(kind) if item.name != "out_channels"}
        return kind(out_channels=self.labelling.out_channels, **own)

    def to_json(self) -> str:
        """Return the configuration as JSON, one setting a line."""
        return json.dumps(vars(self) | {"loss_options": dict(self.loss_options)}, indent=1)

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
