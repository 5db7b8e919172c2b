"""Checkpoints: written atomically, read without executing code."""

import errno
import hashlib
import itertools
import platform
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sparseshot
from sparseshot.cells.table import GREY, PALETTE
from sparseshot.errors import CheckpointError, FormatError, OutputError
from sparseshot.files import replacing
from sparseshot.metrics import Evidence, Interval, ScoreHistogram
from sparseshot.metrics.threshold import BINS
from sparseshot.models.config import SCRATCH, TrainSettings
from sparseshot.models.kind_head import KindHead
from sparseshot.models.labelling import Labelling
from sparseshot.models.task import make_own_network

_FORMAT = "sparseshot checkpoint"
_VERSION = 1
_TYPES: dict[str, type | tuple[type, ...]] = {
    "config": str,
    "weights": dict,
    "step": int,
    "threshold": (float, int, NoneType),
    "criterion": (float, int, NoneType),
    "state": dict,
    "versions": dict,
}


def versions() -> dict[str, str]:
    """Return the versions that decide a result."""
    return {
        "sparseshot": sparseshot.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


@dataclass(frozen=True)
class Checkpoint:
    """A trained or partly trained model, with all that using or resuming it needs.

    Attributes:
        config: of the training.
        weights: of the network.
        step: optimiser steps done.
        threshold: the operating point chosen from held-out marks; None before the first validation.
        criterion: recall² / P(predicted positive) reached there; higher is better.
        state: of optimiser, schedule and loss, to resume from; empty in a finished model.
        evidence: what held-out marks say about its quality; None if an earlier version trained it.
        kinds: tells the kinds of found cells apart; None: what it finds is all there is to say.
        versions: of the software that trained it.
        path: the file it was read from, for error messages.
        own_network: ``module:function`` of a network of one's own, as the user named it. The name in
            ``config`` is not enough: a file that somebody sends must not choose what is imported.
    """

    config: TrainSettings
    weights: dict[str, Tensor]
    step: int
    threshold: float | None = None
    criterion: float | None = None
    state: dict[str, Any] = field(default_factory=dict)
    evidence: Evidence | None = None
    kinds: KindHead | None = None
    versions: dict[str, str] = field(default_factory=versions)
    path: Path = Path("checkpoint")
    own_network: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes it finds."""
        return self.config.labelling.names if self.kinds is None else self.kinds.names

    @property
    def colors(self) -> tuple[str, ...]:
        """Colours of the classes, as ``#rrggbb``; empty for a palette. Cells of no marked kind are grey."""
        if self.kinds is None:
            return self.config.found_colors
        rest = itertools.cycle("#" + bytes(color).hex() for color in PALETTE)
        given = dict(zip(self.config.classes, self.config.colors or rest, strict=False))
        return tuple(given.get(name, "#" + bytes(GREY).hex()) for name in self.kinds.names)

    @property
    def own_kinds(self) -> KindHead | None:
        """The kinds that a starter tells apart by itself; None for a run, whose features have changed."""
        if not self.config.kinds or self.config.start != SCRATCH:
            return None
        weight, bias = (self.weights[f"kind_head.{name}"].cpu().numpy() for name in ("weight", "bias"))
        return KindHead(self.config.kinds, weight, bias, is_guess=True)

    @property
    def mpp(self) -> float:
        """Resolution it works at, µm/px."""
        return self.config.mpp

    def has_classes(self, names: tuple[str, ...]) -> bool:
        """Return whether its last layer serves classes.

        One that finds cells of any kind, as the starter does, also serves to begin with one class, and the
        reverse.
        """
        any_cell = Labelling().names
        own = self.config.labelling.names
        return own == names or (len(own) == len(names) == 1 and any_cell in {own, names})

    def network(self, network: nn.Module | None = None) -> nn.Module:
        """Return the network with these weights, in evaluation mode; a custom network has to be passed in."""
        task = self.config.make_task()
        if network is None and self.own_network:
            network = make_own_network(self.own_network, task)
        if network is None and self.config.network:
            raise CheckpointError(
                self.path,
                f"was trained with the network {self.config.network!r} of somebody's own, which is imported "
                f"only if you name it too: --network {self.config.network}",
            )
        try:
            if network is None:
                with torch.device("meta"):  # a damaged configuration may ask for any amount of memory
                    shapes = {name: weight.shape for name, weight in task.network().state_dict().items()}
                if shapes != {name: weight.shape for name, weight in self.weights.items()}:
                    raise RuntimeError("the names or shapes of the weights differ")
                network = task.network()
            network.load_state_dict(self.weights)
        except (RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                self.path, "has the weights of another network; pass the network that it was trained with"
            ) from error
        return network.eval()

    def save(self, path: Path | str) -> None:
        """Write to ``path``; if that fails, an earlier file stays."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "config": self.config.to_json(),
            "classes": list(self.classes),
            "mpp": self.mpp,
            "weights": self.weights,
            "step": self.step,
            "threshold": self.threshold,
            "criterion": self.criterion,
            "state": self.state,
            "evidence": None if self.evidence is None else _packed(self.evidence),
            "kinds": None if self.kinds is None else _packed_kinds(self.kinds),
            "versions": self.versions,
        }
        try:
            with replacing(path) as temporary, temporary.open("wb") as file:
                torch.save(content, file)  # to a path, it would write the temporary name into the archive
        except (OSError, RuntimeError) as error:
            # torch raises a RuntimeError of its zip writer if the disk is full
            full = isinstance(error, RuntimeError) or error.errno in {errno.ENOSPC, errno.EDQUOT}
            cure = "the disk may be full; make room and run the same command again" if full else str(error)
            raise OutputError(
                path, f"could not be written: {cure} (an earlier checkpoint is kept)"
            ) from error

    @classmethod
    def load(cls, path: Path | str, *, device: str | torch.device = "cpu") -> "Checkpoint":
        """Read a checkpoint; a CheckpointError if it is foreign, damaged or from a later version."""
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(path, "there is no such file; give a run folder or its model.pt")
        try:
            content = torch.load(path, map_location=device, weights_only=True)
        except Exception as error:
            raise CheckpointError(
                path, f"is not a checkpoint, or is damaged ({type(error).__name__})"
            ) from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise CheckpointError(path, "is a PyTorch file, but not a checkpoint of sparseshot")
        version = content.get("version")
        if not isinstance(version, int) or version != _VERSION:
            raise CheckpointError(
                path,
                f"has format version {version}, this sparseshot reads {_VERSION}; "
                f"use the sparseshot that wrote it (versions: {content.get('versions')})",
            )
        for name, types in _TYPES.items():
            if name not in content or not isinstance(content[name], types):
                raise CheckpointError(path, f"is damaged: it has no valid entry {name!r}")
        if not all(isinstance(weight, Tensor) for weight in content["weights"].values()):
            raise CheckpointError(path, "is damaged: not all of its weights are tensors")
        if content["threshold"] is not None and not 0 <= content["threshold"] <= 1:
            raise CheckpointError(path, f"is damaged: threshold is {content['threshold']}")
        try:
            config = TrainSettings.from_json(content["config"], source=path)
        except FormatError as error:
            raise CheckpointError(path, error.problem) from error
        values = {name: content[name] for name in _TYPES if name != "config"}
        packed = content.get("evidence")
        try:
            evidence = None if packed is None else _unpacked(packed)
            head = content.get("kinds")
            kinds = None if head is None else _unpacked_kinds(head, config.kind_features)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                path, f"is damaged: its evidence or kinds cannot be understood ({error!r})"
            ) from error
        return cls(config, **values, evidence=evidence, kinds=kinds, path=path)


def _packed(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as a checkpoint holds it."""
    packed = {
        name: torch.from_numpy(value.counts.copy()) if isinstance(value, ScoreHistogram) else value
        for name, value in vars(evidence).items()
    }
    return packed | {"interval": list(evidence.interval)}


def _unpacked(content: dict[str, Any]) -> Evidence:
    """Return evidence from a checkpoint; what an earlier version did not know is empty."""
    values: dict[str, Any] = {}
    for name, default in vars(Evidence()).items():
        value = content.get(name, default)
        if isinstance(default, ScoreHistogram) and value is not default:
            value = ScoreHistogram(value.numpy().astype(np.int64))
            if value.counts.shape != (BINS,) or (value.counts < 0).any():
                raise ValueError("histograms of another size")
        elif isinstance(default, Interval):
            low, high = map(float, value)
            value = Interval(low, high)
        elif isinstance(default, int):
            value = type(default)(value)
        elif default is None and value is not None:
            value = float(value)
        values[name] = value
    return Evidence(**values)


def _packed_kinds(kinds: KindHead) -> dict[str, Any]:
    facts = {name: fact for name, fact in kinds.as_json().items() if name != "colors"}
    return facts | {name: torch.from_numpy(getattr(kinds, name).copy()) for name in ("weight", "bias")}


def _unpacked_kinds(content: dict[str, Any], features: int) -> KindHead:
    arrays = {name: content[name].numpy() for name in ("weight", "bias")}
    head = KindHead.from_json({"colors": (), **content, **arrays})
    if head.weight.shape[1] != features * (1 + head.looks_around):
        raise ValueError("a head of another size")
    return head


def fingerprint(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of what decides the output: configuration and weights."""
    digest = hashlib.sha256(checkpoint.config.to_json().encode())
    for name, values in sorted(checkpoint.weights.items()):
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    if checkpoint.kinds is not None:
        digest.update("|".join(checkpoint.kinds.names).encode())
        digest.update(checkpoint.kinds.weight.tobytes() + checkpoint.kinds.bias.tobytes())
    return digest.hexdigest()
