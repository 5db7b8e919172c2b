"""Experiments as data: a TOML file read, checked, and turned into runs.

docs/experiments.md shows the format. Whatever is wrong is told with its line and with what would be right.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sparseshot.cells import MARKINGS
from sparseshot.datasets import CATALOGUE, dataset_info
from sparseshot.datasets.layout import find_layout
from sparseshot.errors import DataNotFoundError, InputError
from sparseshot.experiments.paper import TABLES, paper_table
from sparseshot.experiments.plan import LOSS_TITLES, Experiment, Method, Run, grid_of_runs, without_repeats
from sparseshot.experiments.subjects import OwnData, Subject
from sparseshot.experiments.toml_table import TomlTable
from sparseshot.losses import LOSSES, make_loss
from sparseshot.training.config import PROFILES, TASKS, TrainConfig
from sparseshot.training.pairs import pairs_in_csv
from sparseshot.training.runs import make_config

_FILE_KEYS = ("title", "about", "profile", "paper_table", "settings", "losses", "data", "grid")
_LOSS_KEYS = ("loss", "title", "options", "rounds", "tau", "paper")
_DATA_KEYS = ("title", "train", "test", "mpp", "exhaustive_class")
_GRID_KEYS = ("datasets", "tasks", "losses", "fractions", "seeds", "classes", "negative_classes", "marking")
_SAID_BY_GRIDS = ("task", "loss", "loss_options", "classes", "negative_classes", "seed")
_OR_WITHOUT = "or run the other data sets alone: --only 'NAME*'"


@dataclass(frozen=True)
class ExperimentFile:
    """A file of an experiment: the experiment, and where the file says what."""

    experiment: Experiment
    toml: TomlTable

    @classmethod
    def read(cls, path: Path, *, profile: str | None = None) -> "ExperimentFile":
        """Read and check a file; ``profile`` takes the place of the one it names."""
        toml = TomlTable.read(path)
        if profile is not None and profile not in PROFILES:
            raise InputError(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
        return cls(_experiment(toml, profile), toml)

    def check_data(self, root: Path | None, datasets: set[str]) -> None:
        """Raise if there are no images to train on, or to test on, of one of these data sets."""
        for grid in self.toml.tables("grid"):
            for name in grid.strings("datasets"):
                if name in self.toml.table("data").values:
                    if name in datasets:
                        _check_own(self.toml.table("data").table(name))
                elif dataset_info(name).name in datasets:
                    _check_published(grid, name, root)


def _check_own(table: TomlTable) -> None:
    for key in ("train", "test"):
        try:
            if not pairs_in_csv(_beside(table, key)):
                raise table.wrong(key, f"{table.values[key]} names no images; add a row: slide,marks")
        except DataNotFoundError as error:
            raise table.wrong(key, str(error)) from error


def _check_published(grid: TomlTable, name: str, root: Path | None) -> None:
    info = dataset_info(name)
    if root is None:
        raise InputError(f"say where {info.title} and the other data sets are: --root DIR")
    if not root.is_dir():
        raise DataNotFoundError(root, "there is no such folder; give --root, the folder of the data sets")
    try:
        splits = {entry.split for entry in find_layout(info, root).entries}
    except DataNotFoundError as error:
        raise grid.wrong("datasets", f"{error}; {_OR_WITHOUT}", name) from error
    for split in ("train", "test"):
        if split not in splits:
            problem = f"{info.title} in {root} has no images for {split}; complete the folder"
            raise grid.wrong("datasets", f"{problem}; {_OR_WITHOUT}", name)


def _experiment(toml: TomlTable, other_profile: str | None) -> Experiment:
    toml.check_keys(_FILE_KEYS)
    profile = other_profile or toml.string("profile", "quick")
    toml.check_known("profile", profile, PROFILES, kind="profile")
    settings = _settings(toml.table("settings"), profile)
    methods = _methods(toml.table("losses"))
    grids = toml.tables("grid")
    if not grids:
        raise toml.wrong(
            None, "there are no runs here; add a [[grid]] with datasets, tasks, losses and fractions"
        )
    own = _own_data(toml.table("data"))
    runs = [run for grid in grids for run in _runs(grid, methods, own, profile, settings)]
    for task, run in {run.task: run for run in runs}.items():
        try:
            run.config()
        except InputError as error:
            raise toml.wrong("settings", f"for the task {task}: {error}") from error
    return Experiment(
        toml.path.stem,
        toml.string("title", toml.path.stem),
        toml.string("about", ""),
        without_repeats(runs),
        paper_table=_paper_table(toml, methods),
    )


def _settings(table: TomlTable, profile: str) -> Mapping[str, Any]:
    known = [item.name for item in fields(TrainConfig) if item.name not in _SAID_BY_GRIDS]
    for name, value in table.values.items():
        table.check_known(name, name, known, kind="setting")
        try:
            make_config(profile, None, {name: value})
        except (InputError, TypeError) as error:
            raise table.wrong(name, f"{name} = {value!r} cannot be: {error}") from error
    return table.values


def _methods(table: TomlTable) -> dict[str, Method]:
    """Return every loss by its short name, and what the file defines."""
    methods = {name: Method(name, name, LOSS_TITLES[name]) for name in LOSSES}
    for name in table.values:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise table.wrong(
                name, f"the loss {name!r} cannot name a folder; use letters, digits, and . + - _"
            )
        methods[name] = _method(table.table(name), name)
    return methods


def _method(table: TomlTable, name: str) -> Method:
    table.check_keys(_LOSS_KEYS)
    loss, options = table.string("loss", name), table.table("options").values
    try:
        make_loss(loss, options)
    except InputError as error:
        raise table.wrong("options" if loss in LOSSES else "loss", str(error)) from error
    method = Method(
        name,
        loss,
        table.string("title", name),
        options,
        table.whole_number("rounds", 1),
        table.number("tau", 0.75),
        table.string("paper", "") or None,
    )
    try:
        _ = method.weak
    except InputError as error:
        raise table.wrong("tau" if str(error).startswith("tau") else "rounds", str(error)) from error
    return method


def _own_data(table: TomlTable) -> dict[str, OwnData]:
    """Return the images of one's own that the file names; paths are relative to the file."""
    own = {}
    for name in table.values:
        if name in CATALOGUE or not re.fullmatch(r"[\w-]+", name):
            raise table.wrong(name, f"{name!r} is a published data set, or no name; choose another, as mine")
        entry = table.table(name)
        entry.check_keys(_DATA_KEYS)
        mpp = entry.number("mpp", 0.0)
        if mpp < 0:
            raise entry.wrong("mpp", f"mpp is {mpp}; give µm per pixel, e.g. 0.25 for 40x")
        own[name] = OwnData(
            entry.string("title", name),
            str(_beside(entry, "train")),
            str(_beside(entry, "test")),
            mpp or None,
            entry.string("exhaustive_class", OwnData.exhaustive_class),
        )
    return own


def _beside(table: TomlTable, key: str) -> Path:
    path = table.string(key, "")
    if not path:
        raise table.wrong(
            None, f'there is no {key} here; add {key} = "FILE.csv", with columns slide and marks'
        )
    return (table.path.parent / path).resolve()


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
        grid.check_known("tasks", task, TASKS, kind="task")
    for loss in losses:
        grid.check_known("losses", loss, methods, kind="loss")
    return grid_of_runs(
        _subjects(grid, own),
        tasks,
        [methods[loss] for loss in losses],
        _fractions(grid),
        _seeds(grid),
        profile=profile,
        settings=settings,
    )


def _subjects(grid: TomlTable, own: Mapping[str, OwnData]) -> list[Subject]:
    classes, negative = (
        grid.strings(key) if key in grid.values else () for key in ("classes", "negative_classes")
    )
    for both in set(classes) & set(negative):
        raise grid.wrong("negative_classes", f"{both!r} is to be learned and a negative", both)
    marking = grid.string("marking", "random")
    grid.check_known("marking", marking, MARKINGS, kind="marking")
    subjects = []
    for name in grid.strings("datasets"):
        if name in own:
            subjects.append(Subject(name, classes, negative, own[name], marking))
            continue
        try:
            info = dataset_info(name)
        except InputError as error:
            yours = f"; yours are {', '.join(own)}" if own else ""
            raise grid.wrong("datasets", f"{error}{yours}", name) from error
        for key, chosen in (("classes", classes), ("negative_classes", negative)):
            for each in chosen if info.classes else ():
                grid.check_known(key, each, info.classes, kind=f"class in {info.title},")
        subjects.append(Subject(info.name, classes, negative, marking=marking))
    return subjects


def _fractions(grid: TomlTable) -> list[float]:
    fractions = grid.items("fractions")
    for value in fractions:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise grid.wrong(
                "fractions",
                f"a fraction is {value!r}; give shares of the marks above 0, up to 1: 0.3 is 30 %",
                value,
            )
    return [float(value) for value in fractions]


def _seeds(grid: TomlTable) -> list[int]:
    seeds = grid.items("seeds", [0])
    for value in seeds:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise grid.wrong("seeds", f"a seed is {value!r}; give whole numbers from 0 on", value)
    return list(seeds)


def _paper_table(toml: TomlTable, methods: Mapping[str, Method]) -> str | None:
    if "paper_table" not in toml.values:
        return None
    name = toml.string("paper_table", "")
    toml.check_known("paper_table", name, TABLES, kind="table of the paper")
    for method in methods.values():
        if method.paper is not None:
            table = toml.table("losses").table(method.name)
            table.check_known("paper", method.paper, paper_table(name), kind="row of that table")
    return name
