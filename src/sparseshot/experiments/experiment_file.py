"""Experiments as TOML files, checked before anything runs; docs/experiments.md describes the format."""

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sparseshot.active.annotator import POLICIES
from sparseshot.cells import MARKINGS
from sparseshot.datasets import CATALOGUE, dataset_info
from sparseshot.errors import DataNotFoundError, FormatError, InputError, unknown_name
from sparseshot.experiments.clicks import FIRST_CLICKS
from sparseshot.experiments.experiment import (
    AUTO,
    SYNTHETIC,
    Experiment,
    Method,
    OwnData,
    Run,
    Subject,
    grid_of_runs,
    loss_title,
)
from sparseshot.experiments.paper import TABLES, paper_table
from sparseshot.files import read_toml
from sparseshot.losses import LOSSES, make_loss
from sparseshot.models.config import DEFAULT_LOSS, PROFILES, TASKS, TrainConfig, make_config

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Share = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(strict=True, ge=0)]

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


_TABLES: Mapping[str, type[Any]] = {"losses": Method, "data": OwnData, "grid": RunGrid}
"""The tables whose keys are the attributes of a class."""


class _Checker:
    """Raises errors that name the file and the table."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def error(self, place: str, problem: object) -> FormatError:
        return FormatError(self.path, f"{place}: {problem}" if place else str(problem))

    def known(self, place: str, kind: str, names: Collection[str], known: Collection[str]) -> None:
        for name in names:
            if name not in known:
                raise self.error(place, unknown_name(kind, name, known))

    def read(self) -> ExperimentFile:
        """Read the file; a loss has the name of its table, and by default its loss and title too."""
        values = read_toml(self.path)
        for kind, keys in (("losses", ("name", "loss", "title")), ("data", ("title",))):
            tables = values.get(kind)
            if isinstance(tables, dict):
                values[kind] = {
                    name: dict.fromkeys(keys, name) | table if isinstance(table, dict) else table
                    for name, table in tables.items()
                }
        try:
            return TypeAdapter(ExperimentFile).validate_python(values, extra="forbid")
        except ValidationError as error:
            raise self._invalid(error) from error

    def _invalid(self, error: ValidationError) -> FormatError:
        """Return the first error, with the header of its table; a key may be missing because of a typo."""
        first = min(error.errors(), key=lambda each: each["type"] == "missing")
        key, *rest = map(str, first["loc"])
        place = ""
        kind: type[Any] = ExperimentFile
        if key in _TABLES:
            if not rest:
                header = "[[grid]]" if key == "grid" else f"[{key}.NAME]"
                return self.error("", f"{key} is {first['input']!r}; write it as {header}")
            place = f"[[grid]] {int(rest[0]) + 1}" if key == "grid" else f"[{key}.{rest[0]}]"
            kind, key = _TABLES[key], rest[1] if rest[1:] else key
        if first["type"] == "missing":
            return self.error(place, f"there is no {key} here; add {key} = …")
        if first["type"] == "unexpected_keyword_argument":
            return self.error(place, unknown_name("key", key, [item.name for item in fields(kind)]))
        cure = "write it as a list: […]" if first["type"] == "tuple_type" else first["msg"].lower()
        return self.error(place, f"{key} is {first['input']!r}; {cure}")


def read_experiment(path: Path, *, profile: str | None = None) -> Experiment:
    """Read and check a file; ``profile`` replaces the one it names."""
    if profile is not None and profile not in PROFILES:
        raise InputError(unknown_name("profile", profile, PROFILES))
    check = _Checker(path)
    file = check.read()
    profile = profile or file.profile
    check.known("", "profile", [profile], PROFILES)
    _find_modules_beside(path, file)
    _check_settings(check, "[settings]", file.settings, profile)
    for name, method in file.losses.items():
        _check_settings(check, f"[losses.{name}.settings]", method.settings, profile)
    named = [name for grid in file.grid for name in grid.losses if ":" in name]
    methods = {name: Method(name.replace(":", "."), name, loss_title(name)) for name in (*LOSSES, *named)}
    methods |= file.losses
    _check_losses(check, file, named)
    own = {name: _own_data(check, name, data) for name, data in file.data.items()}
    if not file.grid:
        raise check.error("", "there are no runs; add a [[grid]] with datasets, tasks, losses and fractions")
    by_name: dict[str, Run] = {}
    for number, grid in enumerate(file.grid, start=1):
        place = f"[[grid]] {number}"
        check.known(place, "task", grid.tasks, TASKS)
        check.known(place, "loss", grid.losses, methods)
        _check_clicks(check, place, grid, methods)
        runs = grid_of_runs(
            _subjects(check, place, grid, own),
            grid.tasks,
            [methods[loss] for loss in grid.losses],
            grid.fractions,
            grid.seeds,
            profile=profile,
            settings=file.settings,
        )
        for run in runs:  # grids may overlap
            if by_name.setdefault(run.name, run) != run:
                raise check.error(
                    "", f"two different runs have the name {run.name}; rename a class or a data set"
                )
    for task, run in {run.task: run for run in by_name.values()}.items():
        try:
            run.config()
        except InputError as error:
            raise check.error("[settings]", f"for the task {task}: {error}") from error
    return Experiment(
        path.stem, file.title or path.stem, file.about, tuple(by_name.values()), paper_table=file.paper_table
    )


def _check_settings(check: _Checker, place: str, settings: Mapping[str, Any], profile: str) -> None:
    known = [item.name for item in fields(TrainConfig) if item.name not in _SET_BY_GRIDS]
    check.known(place, "setting", settings, known)
    for name, value in settings.items():
        try:
            make_config(profile, None, {name: value})
        except (InputError, TypeError) as error:
            raise check.error(place, f"{name} = {value!r} is not possible: {error}") from error


def _check_clicks(check: _Checker, place: str, grid: RunGrid, methods: Mapping[str, Method]) -> None:
    """Check that clicks are spent in detection, and that only they are spent on the synthetic slide."""
    policies = [methods[loss].policy for loss in grid.losses]
    if any(policies) and (set(grid.tasks) != {"detect"} or min(grid.fractions) < FIRST_CLICKS):
        raise check.error(
            place, f'clicks are spent with tasks = ["detect"] and fractions of {FIRST_CLICKS} clicks or more'
        )
    if any(policies) and any(methods[loss].settings.get("network") for loss in grid.losses):
        raise check.error(place, "clicks are spent with the networks of the package; leave out network")
    if SYNTHETIC in grid.datasets and not all(policies):
        raise check.error(place, f"the data set {SYNTHETIC} is for losses with a policy")


def _find_modules_beside(path: Path, file: ExperimentFile) -> None:
    """Let losses and networks of one's own lie beside the file that names them."""
    names = [method.loss for method in file.losses.values()]
    names += [name for grid in file.grid for name in grid.losses]
    names += [
        str(each.get("network", "")) for each in (file.settings, *(m.settings for m in file.losses.values()))
    ]
    folder = str(path.parent.resolve())
    if any(":" in name for name in names) and folder not in sys.path:
        sys.path.append(folder)  # last, so that nothing installed is hidden; other processes inherit it


def _check_losses(check: _Checker, file: ExperimentFile, named: Collection[str]) -> None:
    for name in named:
        try:
            make_loss(name)
        except InputError as error:
            raise check.error("[[grid]]", error) from error
    if file.paper_table is not None:
        check.known("", "table of the paper", [file.paper_table], TABLES)
    for name, method in file.losses.items():
        place = f"[losses.{name}]"
        if not re.fullmatch(r"[\w.+-]+", name):
            raise check.error("[losses]", f"{name!r} cannot name a folder; use letters, digits, and . + - _")
        try:
            make_loss(DEFAULT_LOSS if method.loss == AUTO else method.loss, method.options)
            if method.policy:
                check.known(place, "policy", [method.policy], POLICIES)
            _ = method.weak  # checks rounds and tau
        except InputError as error:
            raise check.error(place, error) from error
        if file.paper_table is not None and method.paper is not None:
            rows = paper_table(file.paper_table)
            check.known(place, f"row of the table {file.paper_table},", [method.paper], rows)


def _own_data(check: _Checker, name: str, data: OwnData) -> OwnData:
    """Check the user's own images; their paths are relative to the file."""
    if name in {*CATALOGUE, SYNTHETIC} or not re.fullmatch(r"[\w-]+", name):
        raise check.error("[data]", f"{name!r} is a known data set or not a valid name; choose another")
    if data.mpp is not None and data.mpp <= 0:
        raise check.error(f"[data.{name}]", f"mpp is {data.mpp:g}; give µm per pixel, e.g. 0.25 for 40x")
    try:
        train, test = (str((check.path.parent / file).resolve()) for file in (data.train, data.test))
    except ValueError as error:  # a NUL character
        raise check.error(f"[data.{name}]", error) from error
    return replace(data, train=train, test=test)


def _subjects(check: _Checker, place: str, grid: RunGrid, own: Mapping[str, OwnData]) -> list[Subject]:
    classes, negative = (tuple(dict.fromkeys(names)) for names in (grid.classes, grid.negative_classes))
    for both in set(classes) & set(negative):
        raise check.error(place, f"{both!r} is in classes and in negative_classes; remove it from one")
    check.known(place, "marking", [grid.marking], MARKINGS)
    subjects = []
    for name in grid.datasets:
        if name in own:
            subjects.append(Subject(name, classes, negative, own[name], grid.marking))
            continue
        if name == SYNTHETIC:
            subjects.append(Subject(name))
            continue
        file, _, entry = name.rpartition(":")
        place_of_file = str((check.path.parent / file).resolve())
        own_catalogue = f"{place_of_file}:{entry}" if file.endswith(".toml") else None
        try:
            info = dataset_info(own_catalogue or name)
        except (InputError, FormatError, DataNotFoundError) as error:
            yours = f"; yours are {', '.join(own)}" if own else ""
            raise check.error(place, f"{error}{yours}") from error
        if info.classes:
            check.known(place, f"class in {info.title},", (*classes, *negative), info.classes)
        subjects.append(Subject(own_catalogue or info.name, classes, negative, marking=grid.marking))
    return subjects


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
