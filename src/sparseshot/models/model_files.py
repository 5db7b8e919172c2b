"""Model files: those of runs, and the starters in the package."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from torch import Tensor

from sparseshot.errors import CheckpointError
from sparseshot.files import replacing
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import SCRATCH, STARTER, STARTER_NAMES, TrainSettings
from sparseshot.work.folder import MODEL

_VERSION = "1"
_FORMAT = "sparseshot starter"


def load_model(name: Path | str, *, network: str | None = None) -> Checkpoint:
    """Load a model: a run by its folder, a model file, or a starter by its name or file.

    Args:
        name: of the model.
        network: ``module:function`` of the network of one's own that it was trained with.
    """
    path = Path(name)
    if str(name) in STARTER_NAMES and not path.exists():
        return load_starter(STARTER_NAMES[str(name)])
    if path.suffix == ".safetensors":
        return load_starter("", path=path)
    checkpoint = Checkpoint.load(path / MODEL if path.is_dir() else path)
    return replace(checkpoint, own_network=network or "")


def load_start(start: str, task: str) -> Checkpoint | None:
    """Load the model that a run starts from; None for random weights."""
    check_start(start)
    if start == SCRATCH:
        return None
    return load_starter(task) if start == STARTER else load_model(start)


def check_start(start: str | None) -> None:
    """Raise if the model to start from is gone."""
    if start in {None, SCRATCH, *STARTER_NAMES}:
        return
    path = Path(str(start))
    if not path.exists():
        raise CheckpointError(
            path, "there is no such run or model to start from; if it was deleted, start from another"
        )
    if path.is_dir() and not (path / MODEL).exists():
        raise CheckpointError(path, f"has no {MODEL} to start from; finish its training first")


def load_starter(task: str, *, path: Path | None = None) -> Checkpoint:
    """Load the starter of a task from the package, or from a file."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  only when a starter is used

    path = path or Path(str(files("sparseshot") / "models" / "starters" / f"{task}.safetensors"))
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: _widened(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(path, f"cannot be read as a starter ({error})") from error
    if metadata.get("format") != _FORMAT or metadata.get("version") != _VERSION:
        raise CheckpointError(
            path,
            f"is not a starter of this version ({metadata.get('format')} {metadata.get('version')}, not "
            f"{_FORMAT} {_VERSION}); install sparseshot again",
        )
    checkpoint = Checkpoint(
        TrainSettings.from_json(metadata["config"], source=path),
        weights,
        int(metadata["step"]),
        threshold=float(metadata["threshold"]),
        versions=json.loads(metadata["versions"]),
        path=path,
    )
    checkpoint.network()  # raises if the network has changed since
    return checkpoint


def save_starter(checkpoint: Checkpoint, path: Path) -> None:
    """Write a model as a starter, in half precision."""
    from safetensors.torch import save_file  # noqa: PLC0415

    weights = {
        name: (weight.half() if weight.is_floating_point() else weight).contiguous()
        for name, weight in checkpoint.weights.items()
    }
    metadata = {
        "format": _FORMAT,
        "version": _VERSION,
        "config": checkpoint.config.to_json(),
        "step": str(checkpoint.step),
        "threshold": str(checkpoint.threshold),
        "versions": json.dumps(checkpoint.versions),
        "licence": "Apache-2.0",
    }
    with replacing(path) as temporary:
        save_file(weights, temporary, metadata=metadata)


def _widened(weight: Tensor) -> Tensor:
    return weight.float() if weight.is_floating_point() else weight
