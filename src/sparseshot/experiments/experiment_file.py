"""Experiments as TOML files, checked before anything runs; docs/experiments.md describes the format."""

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sparseshot.active.annotator import POLICIES
from sparseshot.cells import MARKINGS
from sparseshot.datasets import CATALOGUE, dataset_info
from sparseshot.errors import DataNotFoundError, FormatError, InputError, SparseshotError, unknown_name
from sparseshot.experiments.clicks import FIRST_CLICKS
from sparseshot.experiments.experiment import (
    AUTO,
    LOSS_TITLES,
    SYNTHETIC,
    Experiment,
    Method,
    OwnData,
    Run,
    Subject,
)
from sparseshot.experiments.paper import TABLES, paper_table
from sparseshot.files import read_toml, toml_as
from sparseshot.losses import LOSSES, make_loss
from sparseshot.models.config import DEFAULT_LOSS, PROFILES, TASKS, TrainConfig, make_config

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Share = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(strict=True, ge=0)]

HEADLINE = (0.3, 1.0, 0.1, 0.6)
"""Fractions that run first, so that a part of an experiment is already informative."""
_SET_BY_GRIDS = ("task", "loss", "loss_options", "classes", "negative_classes", "seed")


@dataclass(frozen=True)
class RunGrid:
    """A ``[[grid]]``: every combination of its lists."""

    datasets: Names
    tasks: Names
    losses: Names
    fractions: Annotated[tuple[Share, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    classes: tuple[str, ...] = ()
    negative_classes: tuple[str, ...] = ()
    marking: str = "random"


@dataclass(frozen=True)
class ExperimentFile:
    """The tables of a file; docs/experiments.md says what each key means."""

    title: str = ""
    about: str = ""
    profile: str = "quick"
    paper_table: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    losses: Mapping[str, Method] = field(default_factory=dict)
    data: Mapping[str, OwnData] = field(default_factory=dict)
    grid: tuple[RunGrid, ...] = ()


def read_experiment(path: Path, *, profile: str | None = None) -> Experiment:
    """Read and check a file; ``profile`` replaces the one it names."""
    if profile is not None:
        _check_known("profile", [profile], PROFILES)
    file = _read(path)
    file = replace(file, profile=profile or file.profile)
    _find_modules_beside(path, file)
    with _within(path):
        _check_known("profile", [file.profile], PROFILES)
        if file.paper_table is not None:
            _check_known("table of the paper", [file.paper_table], TABLES)
        if not file.grid:
            raise InputError("there are no runs; add a [[grid]] with datasets, tasks, losses and fractions")
    with _within(path, "[settings]"):
        _check_settings(file.settings, file.profile)
    for name, method in file.losses.items():
        with _within(path, f"[losses.{name}]"):
            _check_method(name, method, file)
    own = {}
    for name, data in file.data.items():
        with _within(path, f"[data.{name}]"):
            own[name] = _own_data(name, data, path.parent)
    by_name: dict[str, Run] = {}
    for number, grid in enumerate(file.grid, start=1):
        with _within(path, f"[[grid]] {number}"):
            for run in _runs(grid, file, own, path.parent):  # grids may overlap
                if by_name.setdefault(run.name, run) != run:
                    raise InputError(
                        f"two different runs have the name {run.name}; rename a class or a data set"
                    )
    for task, run in {run.task: run for run in by_name.values()}.items():
        with _within(path, f"[settings]: for the task {task}"):
            run.config()
    return Experiment(path.stem, file.title or path.stem, file.about, (*by_name.values(),), file.paper_table)


@contextmanager
def _within(path: Path, table: str = "") -> Iterator[None]:
    """Let errors in a block name the file and the table."""
    try:
        yield
    except (SparseshotError, ValueError, TypeError) as error:  # a path with a NUL is a ValueError
        raise FormatError(path, f"{table}: {error}" if table else str(error)) from error


def _check_known(kind: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(unknown_name(kind, name, known))


def _read(path: Path) -> ExperimentFile:
    """Read a file; a loss has the name of its table, and by default its loss and title too."""
    values = read_toml(path)
    for kind, keys in (("losses", ("name", "loss", "title")), ("data", ("title",))):
        tables = values.get(kind)
        if isinstance(tables, dict):
            values[kind] = {
                name: dict.fromkeys(keys, name) | table if isinstance(table, dict) else table
                for name, table in tables.items()
            }
    kinds = {"": ExperimentFile, "losses": Method, "data": OwnData, "grid": RunGrid}
    return toml_as(ExperimentFile, values, path, kinds)


def _find_modules_beside(path: Path, file: ExperimentFile) -> None:
    """Let losses and networks of one's own lie beside the file that names them."""
    names = [method.loss for method in file.losses.values()]
    names += [name for grid in file.grid for name in grid.losses]
    settings = (file.settings, *(method.settings for method in file.losses.values()))
    names += [str(each.get("network", "")) for each in settings]
    folder = str(path.parent.resolve())
    if any(":" in name for name in names) and folder not in sys.path:
        sys.path.append(folder)  # last, so that nothing installed is hidden; other processes inherit it


def _check_settings(settings: Mapping[str, Any], profile: str) -> None:
    known = [item.name for item in fields(TrainConfig) if item.name not in _SET_BY_GRIDS]
    _check_known("setting", settings, known)
    for name, value in settings.items():
        try:
            make_config(profile, None, {name: value})
        except (InputError, TypeError) as error:
            raise InputError(f"{name} = {value!r} is not possible: {error}") from error


def _check_method(name: str, method: Method, file: ExperimentFile) -> None:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise InputError(f"{name!r} cannot name a folder; use letters, digits, and . + - _")
    _check_settings(method.settings, file.profile)
    make_loss(DEFAULT_LOSS if method.loss == AUTO else method.loss, method.options)
    if method.policy:
        _check_known("policy", [method.policy], POLICIES)
    _ = method.weak  # checks rounds and tau
    if file.paper_table is not None and method.paper is not None:
        _check_known(f"row of the table {file.paper_table},", [method.paper], paper_table(file.paper_table))


def _own_data(name: str, data: OwnData, folder: Path) -> OwnData:
    """Check the user's own images; their paths are relative to the folder."""
    if name in {*CATALOGUE, SYNTHETIC} or not re.fullmatch(r"[\w-]+", name):
        raise InputError(f"{name!r} is a known data set or not a valid name; choose another")
    if data.mpp is not None and data.mpp <= 0:
        raise InputError(f"mpp is {data.mpp:g}; give µm per pixel, e.g. 0.25 for 40x")
    train, test = (str((folder / file).resolve()) for file in (data.train, data.test))
    return replace(data, train=train, test=test)


def _runs(grid: RunGrid, file: ExperimentFile, own: Mapping[str, OwnData], folder: Path) -> list[Run]:
    """Check a grid, and return its runs."""
    named = [name for name in grid.losses if ":" in name]
    methods = {
        name: Method(name.replace(":", "."), name, LOSS_TITLES.get(name, name)) for name in (*LOSSES, *named)
    }
    methods |= file.losses
    _check_known("task", grid.tasks, TASKS)
    _check_known("loss", grid.losses, methods)
    _check_known("marking", [grid.marking], MARKINGS)
    chosen = [methods[name] for name in grid.losses]
    for name in named:
        make_loss(name)
    policies = [method.policy for method in chosen]
    if any(policies) and (set(grid.tasks) != {"detect"} or min(grid.fractions) < FIRST_CLICKS):
        raise InputError(
            f'clicks are spent with tasks = ["detect"] and fractions of {FIRST_CLICKS} clicks or more'
        )
    if any(policies) and any(method.settings.get("network") for method in chosen):
        raise InputError("clicks are spent with the networks of the package; leave out network")
    if SYNTHETIC in grid.datasets and not all(policies):
        raise InputError(f"the data set {SYNTHETIC} is for losses with a policy")
    for both in set(grid.classes) & set(grid.negative_classes):
        raise InputError(f"{both!r} is in classes and in negative_classes; remove it from one")
    subjects = [_subject(name, grid, own, folder) for name in grid.datasets]
    first = {fraction: place for place, fraction in enumerate(HEADLINE)}
    ordered = sorted(grid.fractions, key=lambda fraction: (first.get(fraction, len(first)), fraction))
    return [
        Run(subject, task, method, fraction, seed, file.profile, file.settings)
        for seed, fraction, subject, task, method in product(
            grid.seeds, ordered, subjects, grid.tasks, chosen
        )
    ]


def _subject(name: str, grid: RunGrid, own: Mapping[str, OwnData], folder: Path) -> Subject:
    """Return a data set of a grid: the user's own, synthetic, or of a catalogue."""
    if name == SYNTHETIC:
        return Subject(name)
    if name not in own:
        file, _, entry = name.rpartition(":")
        try:
            if file.endswith(".toml"):
                name = f"{(folder / file).resolve()}:{entry}"
            info = dataset_info(name)
        except SparseshotError as error:
            yours = f"; yours are {', '.join(own)}" if own else ""
            raise InputError(f"{error}{yours}") from error
        name = name if file.endswith(".toml") else info.name
        if info.classes:
            classes = (*grid.classes, *grid.negative_classes)
            _check_known(f"class in {info.title},", classes, info.classes)
    classes, negative = (tuple(dict.fromkeys(names)) for names in (grid.classes, grid.negative_classes))
    return Subject(name, classes, negative, own.get(name), grid.marking)


def shipped_experiments() -> dict[str, Path]:
    """Return the files that come with the package by name, in alphabetical order."""
    folder = Path(str(files(__package__).joinpath("shipped")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


PAPER = "paper"
"""Name of all experiments of the paper together."""


def open_experiments(name_or_path: str, *, profile: str | None = None) -> list[Experiment]:
    """Read an experiment as :func:`open_experiment` does, or all those of the paper by the name ``paper``."""
    whole = ("segmentation", "detection", "weak-supervision", "annealing", "exclusive-recall")
    names = whole if name_or_path == PAPER else (name_or_path,)
    return [open_experiment(name, profile=profile) for name in names]


def open_experiment(name_or_path: str, *, profile: str | None = None) -> Experiment:
    """Read an experiment by the name of a shipped one, or by the path of a TOML file."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        return replace(read_experiment(path, profile=profile), file=str(path.resolve()))
    shipped = shipped_experiments()
    if name_or_path not in shipped:
        raise DataNotFoundError(
            name_or_path, f"is neither a file nor an experiment of the package: {', '.join(shipped)}"
        )
    return read_experiment(shipped[name_or_path], profile=profile)
