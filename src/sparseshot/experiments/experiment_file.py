"""Experiments as TOML files, checked before anything runs; docs/experiments.md describes the format."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparseshot.cells import MARKINGS
from sparseshot.datasets import CATALOGUE, dataset_info
from sparseshot.errors import DataNotFoundError, InputError
from sparseshot.experiments.experiment import LOSS_TITLES, Experiment, Method, Run, grid_of_runs
from sparseshot.experiments.paper import TABLES, paper_table
from sparseshot.experiments.subjects import OwnData, Subject
from sparseshot.experiments.toml_table import TomlTable
from sparseshot.losses import LOSSES, make_loss
from sparseshot.models.tasks import TASKS
from sparseshot.training.config import PROFILES, TrainConfig
from sparseshot.training.runs import make_config

_FILE_KEYS = ("title", "about", "profile", "paper_table", "settings", "losses", "data", "grid")
_LOSS_KEYS = ("loss", "title", "options", "rounds", "tau", "paper")
_DATA_KEYS = ("title", "train", "test", "mpp", "exhaustive_class")
_GRID_KEYS = ("datasets", "tasks", "losses", "fractions", "seeds", "classes", "negative_classes", "marking")
_SET_BY_GRIDS = ("task", "loss", "loss_options", "classes", "negative_classes", "seed")


def read_experiment(path: Path, *, profile: str | None = None) -> Experiment:
    """Read and check a file; ``profile`` replaces the one it names."""
    if profile is not None and profile not in PROFILES:
        raise InputError(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    toml = TomlTable.read(path)
    toml.check_keys(_FILE_KEYS)
    profile = profile or toml.get("profile", "quick")
    toml.check_known(profile, PROFILES, kind="profile")
    settings = _settings(toml.table("settings"), profile)
    methods = _methods(toml.table("losses"))
    own = _own_data(toml.table("data"))
    grids = toml.tables("grid")
    if not grids:
        raise toml.error("there are no runs; add a [[grid]] with datasets, tasks, losses and fractions")
    runs = [run for grid in grids for run in _runs(grid, methods, own, profile, settings)]
    by_name: dict[str, Run] = {}
    for run in runs:  # grids may overlap
        if by_name.setdefault(run.name, run) != run:
            raise toml.error(f"two different runs have the name {run.name}; rename a class or a data set")
    for task, run in {run.task: run for run in runs}.items():
        try:
            run.config()
        except InputError as error:
            raise toml.table("settings").error(f"for the task {task}: {error}") from error
    return Experiment(
        path.stem,
        toml.get("title", path.stem),
        toml.get("about", ""),
        tuple(by_name.values()),
        paper_table=_paper_table(toml, methods),
    )


def _settings(table: TomlTable, profile: str) -> Mapping[str, Any]:
    known = [item.name for item in fields(TrainConfig) if item.name not in _SET_BY_GRIDS]
    for name, value in table.values.items():
        table.check_known(name, known, kind="setting")
        try:
            make_config(profile, None, {name: value})
        except (InputError, TypeError) as error:
            raise table.error(f"{name} = {value!r} is not possible: {error}") from error
    return table.values


def _methods(table: TomlTable) -> dict[str, Method]:
    """Return every loss by its short name, and the methods the file defines."""
    methods = {name: Method(name, name, LOSS_TITLES[name]) for name in LOSSES}
    for name in table.values:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise table.error(f"{name!r} cannot name a folder; use letters, digits, and . + - _")
        methods[name] = _method(table.table(name), name)
    return methods


def _method(table: TomlTable, name: str) -> Method:
    table.check_keys(_LOSS_KEYS)
    loss, options = table.get("loss", name), table.table("options").values
    try:
        make_loss(loss, options)
        method = Method(
            name,
            loss,
            table.get("title", name),
            options,
            table.get("rounds", 1),
            table.get("tau", 0.75),
            table.get("paper", "") or None,
        )
        _ = method.weak  # checks rounds and tau
    except InputError as error:
        raise table.error(str(error)) from error
    return method


def _own_data(table: TomlTable) -> dict[str, OwnData]:
    """Return the user's own images; paths are relative to the file."""
    own = {}
    for name in table.values:
        if name in CATALOGUE or not re.fullmatch(r"[\w-]+", name):
            raise table.error(f"{name!r} is a published data set or not a valid name; choose another")
        entry = table.table(name)
        entry.check_keys(_DATA_KEYS)
        mpp = entry.get("mpp", 0.0)
        if mpp < 0:
            raise entry.error(f"mpp is {mpp:g}; give µm per pixel, e.g. 0.25 for 40x")
        for key in ("train", "test"):
            if not entry.get(key, ""):
                raise entry.error(
                    f'there is no {key} here; add {key} = "FILE.csv", with columns slide and marks'
                )
        own[name] = OwnData(
            title=entry.get("title", name),
            train=str((table.path.parent / entry.values["train"]).resolve()),
            test=str((table.path.parent / entry.values["test"]).resolve()),
            mpp=mpp or None,
            exhaustive_class=entry.get("exhaustive_class", OwnData.exhaustive_class),
        )
    return own


def _runs(
    grid: TomlTable,
    methods: Mapping[str, Method],
    own: Mapping[str, OwnData],
    profile: str,
    settings: Mapping[str, Any],
) -> list[Run]:
    grid.check_keys(_GRID_KEYS)
    tasks, losses = grid.strings("tasks"), grid.strings("losses")
    for task in tasks:
        grid.check_known(task, tuple(TASKS), kind="task")
    for loss in losses:
        grid.check_known(loss, methods, kind="loss")
    fractions, seeds = grid.items("fractions"), grid.items("seeds", [0])
    for value in fractions:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise grid.error(f"a fraction is {value!r}; give shares of the marks above 0, up to 1")
    for value in seeds:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise grid.error(f"a seed is {value!r}; give whole numbers from 0 on")
    return grid_of_runs(
        _subjects(grid, own),
        tasks,
        [methods[loss] for loss in losses],
        [float(value) for value in fractions],
        seeds,
        profile=profile,
        settings=settings,
    )


def _subjects(grid: TomlTable, own: Mapping[str, OwnData]) -> list[Subject]:
    classes, negative = (grid.strings(key, []) for key in ("classes", "negative_classes"))
    for both in set(classes) & set(negative):
        raise grid.error(f"{both!r} is in classes and in negative_classes; remove it from one")
    marking = grid.get("marking", "random")
    grid.check_known(marking, MARKINGS, kind="marking")
    subjects = []
    for name in grid.strings("datasets"):
        if name in own:
            subjects.append(Subject(name, classes, negative, own[name], marking))
            continue
        try:
            info = dataset_info(name)
        except InputError as error:
            yours = f"; yours are {', '.join(own)}" if own else ""
            raise grid.error(f"{error}{yours}") from error
        for each in (*classes, *negative) if info.classes else ():
            grid.check_known(each, info.classes, kind=f"class in {info.title},")
        subjects.append(Subject(info.name, classes, negative, marking=marking))
    return subjects


def _paper_table(toml: TomlTable, methods: Mapping[str, Method]) -> str | None:
    name = toml.get("paper_table", "")
    if not name:
        return None
    toml.check_known(name, TABLES, kind="table of the paper")
    for method in methods.values():
        if method.paper is not None:
            toml.check_known(method.paper, paper_table(name), kind=f"row of the table {name},")
    return name


def shipped_experiments() -> dict[str, Path]:
    """Return the files that come with the package by name, in alphabetical order."""
    folder = Path(str(files(__package__).joinpath("shipped")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def open_experiment(name_or_path: str, *, profile: str | None = None) -> Experiment:
    """Read an experiment by the name of a shipped one, or by the path of a TOML file."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return replace(read_experiment(path, profile=profile), file=str(path.resolve()))
    shipped = shipped_experiments()
    if name_or_path not in shipped:
        raise DataNotFoundError(
            name_or_path, f"is neither a file nor an experiment of the package: {', '.join(shipped)}"
        )
    return read_experiment(shipped[name_or_path], profile=profile)
