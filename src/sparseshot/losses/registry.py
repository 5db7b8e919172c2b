"""Losses and schedules by the short names of the command line and of configuration files."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from sparseshot.errors import InputError, unknown_name
from sparseshot.losses.adaptive import AdaptiveExclusiveCrossEntropy
from sparseshot.losses.base import Loss
from sparseshot.losses.baselines import (
    AnnotatedOnly,
    BackgroundRecalibration,
    CrossEntropy,
    FocalLoss,
    HuberLoss,
    Oracle,
)
from sparseshot.losses.exclusive import PRESETS, ExclusiveCrossEntropy
from sparseshot.losses.positive_unlabelled import NonNegativePU
from sparseshot.losses.schedules import Constant, Linear, Logistic, Ramp, Schedule, Sigmoid
from sparseshot.losses.teacher import Distillation, EarlyLearningRegularisation

LOSSES: Mapping[str, Callable[..., Loss]] = MappingProxyType(
    {
        "ece": ExclusiveCrossEntropy,
        "ece-plain": partial(ExclusiveCrossEntropy, **PRESETS["plain"]),
        "ece-nki": partial(ExclusiveCrossEntropy, **PRESETS["nki"]),
        "adaptive": AdaptiveExclusiveCrossEntropy,
        "ce": CrossEntropy,
        "focal": FocalLoss,
        "huber": HuberLoss,
        "recalibration": BackgroundRecalibration,
        "nnpu": NonNegativePU,
        "elr": EarlyLearningRegularisation,
        "distil": Distillation,
        "annotated-only": AnnotatedOnly,
        "oracle": Oracle,
    }
)
"""Constructors of the losses by short name. "ece" is the authors' abbreviation of exclusive cross-entropy."""

SCHEDULES: Mapping[str, Callable[..., Schedule]] = MappingProxyType(
    {"constant": Constant, "linear": Linear, "sigmoid": Sigmoid, "logistic": Logistic, "ramp": Ramp}
)
"""Constructors of the schedules by the names that configuration files use."""


def make_loss(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> Loss:
    """Make a loss from its short name and the options of its constructor, as in a configuration file.

    ``module:Class`` names a :class:`Loss` of one's own, in a module that Python can import.

    A schedule is a number, or a table with its name: ``{"schedule": "linear", "top": 0.75}``.

    >>> make_loss("ece", {"alpha": 0.05, "rho": {"schedule": "linear", "top": 0.5}}).rho
    Linear(top=0.5)
    >>> make_loss("foacl")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sparseshot.errors.InputError: there is no loss 'foacl'; did you mean 'focal'? Known are ece, ...
    """
    ready = {key: _schedule(value) if isinstance(value, Mapping) else value for key, value in options.items()}
    makers = {name: _own_loss(name)} if ":" in name else LOSSES
    loss: Loss = _make("loss", name, makers, ready)
    return loss


def find_own(kind: str, name: str) -> Any:
    """Import what ``module:name`` says; call it only for names that the user gave, not for those in a model.

    >>> find_own("loss", "math:pi")
    3.141592653589793
    """
    module_name, _, own_name = name.partition(":")
    try:
        found = getattr(import_module(module_name), own_name, None)
    except Exception as error:  # whatever somebody's module raises
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        cure = "run in its folder with python -m sparseshot, or name the folder in PYTHONPATH"
        raise InputError(
            f"{kind} {name!r}: there is no module {module_name!r}; {cure}"
            if missing or not module_name
            else f"{kind} {name!r}: its module cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if found is None:
        raise InputError(f"{kind} {name!r}: {own_name!r} in {module_name} is missing; name one that is there")
    return found


def _own_loss(name: str) -> type[Loss]:
    """Return the class that ``module:Class`` names; never anything but a loss, for names come from files."""
    found = find_own("loss", name)
    if not (isinstance(found, type) and issubclass(found, Loss)):
        raise InputError(f"loss {name!r} is no subclass of sparseshot.losses.Loss; name a class that is")
    return found


def _schedule(table: Mapping[str, Any]) -> Schedule:
    if "schedule" not in table:
        raise InputError(f"{dict(table)} names no schedule; add schedule = one of {', '.join(SCHEDULES)}")
    options = {key: value for key, value in table.items() if key != "schedule"}
    schedule: Schedule = _make("schedule", table["schedule"], SCHEDULES, options)
    return schedule


def _make(kind: str, name: str, makers: Mapping[str, Callable[..., Any]], options: Mapping[str, Any]) -> Any:
    if name not in makers:
        raise InputError(unknown_name(kind, name, makers))
    known = inspect.signature(makers[name]).parameters
    for option in options:
        if option not in known:
            raise InputError(f"{kind} {name!r}: " + unknown_name("option", option, known))
    try:
        return makers[name](**options)
    except TypeError as error:
        raise InputError(f"the {kind} {name!r} cannot be made from {dict(options)}: {error}") from error
