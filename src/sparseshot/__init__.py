"""Find every cell in a slide from a few marked ones.

The most used names, each loaded on first use so that ``import sparseshot`` is fast::

    import sparseshot as ss

    data = ss.TrainingData(pairs=((Path("a.svs"), Path("a.geojson")),))
    ss.train_run(ss.TrainConfig(task="detect"), data, Path("run"))
    with ss.open_slide("b.svs") as slide:
        ss.predict_slide(slide, ss.Model.load("run"), "found")
    ss.read_prediction("found").write("found.geojson")

Everything else is in the packages :mod:`sparseshot.cells`, ``images``, ``losses``, ``models``, ``datasets``,
``metrics``, ``training``, ``prediction``, ``experiments``.

>>> import sparseshot as ss
>>> ss.Cells([[10, 20], [30, 40]], mpp=0.25)
Cells(2: 2 cell; 0.25 µm/px; x 10–30, y 20–40)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparseshot.cells import Cells, read_cells, write_cells
    from sparseshot.datasets import load_dataset
    from sparseshot.errors import SparseshotError
    from sparseshot.images import open_slide
    from sparseshot.losses import ExclusiveCrossEntropy, exclusive_cross_entropy, make_loss
    from sparseshot.metrics import calibrate_threshold, match_cells
    from sparseshot.prediction import Model, predict_slide, read_prediction
    from sparseshot.training import TrainConfig, TrainingData, train_run

__version__ = "0.2.0"

__all__ = [
    "Cells",
    "ExclusiveCrossEntropy",
    "Model",
    "SparseshotError",
    "TrainConfig",
    "TrainingData",
    "calibrate_threshold",
    "exclusive_cross_entropy",
    "load_dataset",
    "make_loss",
    "match_cells",
    "open_slide",
    "predict_slide",
    "read_cells",
    "read_prediction",
    "train_run",
    "write_cells",
]

_NAMES_OF = {
    "cells": ("Cells", "read_cells", "write_cells"),
    "datasets": ("load_dataset",),
    "errors": ("SparseshotError",),
    "images": ("open_slide",),
    "losses": ("ExclusiveCrossEntropy", "exclusive_cross_entropy", "make_loss"),
    "metrics": ("calibrate_threshold", "match_cells"),
    "prediction": ("Model", "predict_slide", "read_prediction"),
    "training": ("TrainConfig", "TrainingData", "train_run"),
}

if not TYPE_CHECKING:  # it would make every name valid for a type checker

    def __getattr__(name: str) -> object:
        """Load a name when it is first used."""
        for package, names in _NAMES_OF.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{package}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names, loaded or not."""
    return sorted({*globals(), *__all__})
