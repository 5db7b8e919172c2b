"""What the folder of a prediction holds: its recipe, which decides its bytes, its shards, its progress."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from sparseshot.errors import FormatError, OutputError
from sparseshot.files import locked, read_as, write_json
from sparseshot.images.fingerprint import slide_fingerprint
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.models.windows import WindowLayout
from sparseshot.work import File, State, WorkFolder
from sparseshot.work.folder import RECIPE, STATE, as_json, read_recipe

MANIFEST = "manifest.json"
"""Recipe and state of a prediction by sparseshot 0.2.0."""
SHARDS = "cells"
"""The folder of shards."""
RESULT, UNDECIDED, UNFINISHED = ".parquet", ".undecided.parquet", ".unfinished.parquet"
"""Endings of the tables of a band: its cells, those that the next band decides, and cells whose neighbours
are only known at the end. The latter two are removed then."""
CANDIDATES, FEATURES = ".found.parquet", ".features.npy"
"""Endings of the files that ``--features`` keeps: all candidates of a band, and their features."""


def shard_name(band: int, ending: str = RESULT) -> str:
    """Return the name of a file of a band.

    >>> shard_name(3), shard_name(3, UNDECIDED)
    ('cells/00003.parquet', 'cells/00003.undecided.parquet')
    """
    return f"{SHARDS}/{band:05d}{ending}"


@dataclass(frozen=True)
class PredictRecipe:
    """Everything that decides the cells of a slide.

    Attributes:
        slide: name, size, resolution and fingerprint.
        model: fingerprint, task, classes and resolution.
        threshold: probability at which something is a cell.
        precision: of the network.
        engine: what runs the network.
        only_tissue: whether glass is left out.
        settings: of the finder.
        measured: what is measured of each cell.
        features: what ``--features`` keeps: the lowest score of a candidate; None if they are not kept.
        kinds: a head that was learned from marks since, with its colours; None for that of the model.
        region: the part of the slide that is predicted, as WKT in level-0 pixels; None for all of it.
        kind: of work.
    """

    slide: Mapping[str, Any]
    model: Mapping[str, Any]
    threshold: float
    precision: str
    engine: str
    only_tissue: bool
    settings: Mapping[str, Any]
    measured: Mapping[str, Any]
    features: Mapping[str, float] | None = None
    kinds: Mapping[str, Any] | None = None
    region: str | None = None
    kind: Literal["predict"] = "predict"


def slide_identity(slide: Slide) -> dict[str, Any]:
    """Return what tells one slide from another, as JSON holds it."""
    return {
        "name": slide.name,
        "size_px": list(slide.size),
        "mpp": slide.mpp,
        "fingerprint": slide_fingerprint(slide),
    }


@dataclass(frozen=True)
class Broken:
    """A place of the slide that could not be read, in level-0 pixels, and the reason."""

    x0: float
    y0: float
    x1: float
    y1: float
    reason: str

    @classmethod
    def of(cls, box: Box, reason: str, grid: Grid) -> Self:
        """Take a box of pixels of a grid."""
        x0, y0, x1, y1 = np.round(grid.to_level0(box), 2).tolist()
        return cls(x0, y0, x1, y1, reason)

    def on(self, grid: Grid) -> Box:
        """Return the box of grid pixels it was made of."""
        return Box(*np.round(grid.from_level0((self.x0, self.y0, self.x1, self.y1))).astype(int).tolist())


@dataclass(frozen=True)
class Shard:
    """The cells of one band.

    Attributes:
        band: its index.
        cells: number of cells.
        file: their table.
        carried: the table of those that the next band decides; removed at the end.
        broken: places that could not be read.
    """

    band: int
    cells: int
    file: File
    carried: File
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Kept:
    """What one band found, before threshold and kinds.

    Attributes:
        file: table of all candidates.
        features: of each.
        broken: places that could not be read.
    """

    file: File
    features: File
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Done:
    """What the state of a prediction holds of its own.

    Attributes:
        layout: sizes of tiles and windows, which decide how cells are spread over shards.
        bands: number of shards in the end.
        shards: the finished ones, in order.
        plan: a hash of what belongs to each band, which the tissue decides; empty until a band is finished.
        kept: what the finished bands found, if features are kept. Once it is that of all bands, other shards
            can be made of it without the network.
    """

    layout: WindowLayout
    bands: int = 0
    shards: tuple[Shard, ...] = ()
    plan: str = ""
    kept: tuple[Kept, ...] = ()

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Every place that could not be read."""
        return tuple(place for shard in self.shards for place in shard.broken)

    @property
    def keeps_all(self) -> bool:
        """Whether what all bands found is kept."""
        return 0 < self.bands == len(self.kept)


@dataclass(frozen=True)
class Manifest:
    """A prediction as its folder records it.

    Attributes:
        identity: the recipe: everything that decides the result.
        done: the shards so far.
        files: made of all shards.
        finished: everything is written.
        seconds: spent on it, over all starts.
    """

    identity: Mapping[str, Any]
    done: Done
    files: tuple[File, ...] = ()
    finished: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        slide = self.identity.get("slide")
        if not isinstance(slide, Mapping) or not isinstance(slide.get("fingerprint"), str):
            raise ValueError("it has no slide fingerprint")

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The finished shards, in order."""
        return self.done.shards

    @property
    def keeps_all(self) -> bool:
        """Whether everything that was found is kept, with features."""
        return bool(self.identity.get("features")) and self.done.keeps_all

    def is_of(self, slide: Mapping[str, Any]) -> bool:
        """Return whether this is the result of a slide, given its identity.

        A result with unreadable places is also that of a slide which differs by its fingerprint only: its
        file was mended.
        """
        own = self.identity["slide"]
        return own == slide or (
            bool(self.done.broken) and own | {"fingerprint": slide["fingerprint"]} == slide
        )

    def is_by(self, model: str) -> bool:
        """Return whether this is the result of a model, given its fingerprint."""
        return bool(self.identity["model"]["fingerprint"] == model)

    def save(self, folder: Path) -> None:
        """Write recipe and state."""
        write_json(folder / RECIPE, self.identity)
        own = asdict(self.done)
        write_json(folder / STATE, State(self.finished, self.files, self.seconds, own=own))

    @classmethod
    def of(cls, recipe: Mapping[str, Any], state: State) -> Self:
        """Return the manifest of a recipe and a state."""
        from pydantic import TypeAdapter  # noqa: PLC0415  as in sparseshot.files

        done = TypeAdapter(Done).validate_python(dict(state.own), extra="forbid")
        return cls(recipe, done, state.files, state.finished, state.seconds)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read what a folder records; None if it holds no prediction."""
        old, new = folder / MANIFEST, folder / RECIPE
        if not (new.is_file() or old.is_file()):
            return None
        try:
            if not new.is_file():
                before = read_as(old, _OldManifest)
                engine = before.identity.get("engine", "eager")  # before there were others
                identity = {**before.identity, "engine": engine, "kind": "predict"}
                done = Done(before.layout, before.bands, before.shards, before.plan)
                return cls(identity, done, before.files, before.finished)
            recipe = read_recipe(folder)
            state = WorkFolder.open(folder).state
            if recipe is None or recipe.get("kind") != "predict" or not state.own:
                return None
            return cls.of(recipe, state)
        except (FormatError, ValueError) as error:
            path = new if new.is_file() else old
            raise FormatError(
                path, "is not a prediction that this version can read; predict the slide again with --force"
            ) from error

    def sound(self, folder: Path) -> Self:
        """Return the manifest without files that were damaged or removed since."""
        kept = tuple(
            takewhile(lambda each: each.file.is_in(folder) and each.features.is_in(folder), self.done.kept)
        )
        shards = self.shards if len(kept) == len(self.done.kept) else self.shards[: len(kept)]
        sound = takewhile(
            lambda each: each[0] == each[1].band and each[1].file.is_in(folder), enumerate(shards)
        )
        count = len(list(sound))
        if count == len(self.shards) == self.done.bands:
            return replace(self, finished=self.finished and all(file.is_in(folder) for file in self.files))
        if not kept or len(kept) < self.done.bands:
            # A resume needs the cells that the last good band left undecided.
            while count and not self.shards[count - 1].carried.is_in(folder):
                count -= 1
            kept = kept[:count]
        done = replace(self.done, shards=self.shards[:count], kept=kept)
        return replace(self, done=done, finished=False)


@dataclass(frozen=True)
class _OldManifest:
    """The file of sparseshot 0.2.0."""

    identity: dict[str, Any]
    layout: WindowLayout
    bands: int = 0
    shards: tuple[Shard, ...] = ()
    files: tuple[File, ...] = ()
    finished: bool = False
    plan: str = ""
    format: Literal["sparseshot prediction"] = "sparseshot prediction"
    version: Literal[1] = 1
    sparseshot: str = ""


def is_prediction(folder: Path) -> bool:
    """Return whether a folder holds a prediction, finished or not."""
    if (folder / MANIFEST).is_file():
        return True
    try:
        recipe = read_recipe(folder)
    except FormatError:
        return False
    return recipe is not None and recipe.get("kind") == "predict"


def predictions_in(folder: Path) -> list[Path]:
    """Return the predictions in the folders inside a folder, by name."""
    found = {path.parent for name in (RECIPE, MANIFEST) for path in folder.glob(f"*/{name}")}
    return sorted(filter(is_prediction, found))


@contextmanager
def claimed(
    folder: Path, recipe: PredictRecipe, layout: WindowLayout, *, force: bool, wait_s: float
) -> Iterator[tuple[WorkFolder, Manifest]]:
    """Claim a folder for a recipe until the block ends; yield it with what is done in it.

    Args:
        folder: of this slide alone; created if missing.
        recipe: the recipe.
        layout: of a new result; the one that is there keeps its own.
        force: replace another result, or write beside other files.
        wait_s: how long to wait for another process that works there.

    Raises:
        OutputError: it holds the result of another model, threshold or slide, or other files.
    """
    with locked(folder, wait_s=wait_s):
        try:
            there = Manifest.load(folder)
        except FormatError:
            if not force:
                raise
            there = None
            for name in (RECIPE, STATE, MANIFEST):
                (folder / name).unlink(missing_ok=True)
        if there is not None and (folder / MANIFEST).is_file() and not (folder / RECIPE).is_file():
            there.save(folder)
        (folder / MANIFEST).unlink(missing_ok=True)
        shards, wanted = folder / SHARDS, as_json(recipe)
        if not shards.resolve().is_relative_to(folder.resolve()):
            raise OutputError(shards, "is a link that leads elsewhere; remove it")
        if there is not None and there.keeps_all and _differs_by_kinds(there.identity, wanted):
            # State first: killed in between, the old result is made again.
            done = replace(there.done, shards=())
            write_json(folder / STATE, State(seconds=there.seconds, own=asdict(done)))
            write_json(folder / RECIPE, wanted)

    def may_replace(other: Mapping[str, Any]) -> bool:
        is_mended = there is not None and there.is_of(recipe.slide)
        return force or (is_mended and {**other, "slide": recipe.slide} == wanted)

    advice = "choose another --out, or replace it with --force"
    with WorkFolder.claimed(folder, recipe, may_replace=may_replace, advice=advice, wait_s=wait_s) as work:
        manifest = Manifest(wanted, Done(layout))
        if work.state.own:
            manifest = Manifest.of(wanted, work.state).sound(folder)
            shards.mkdir(exist_ok=True)
        yield work, manifest


def _differs_by_kinds(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether results differ, but only by what is decided after finding."""

    def finding(recipe: Mapping[str, Any]) -> dict[str, Any]:
        rest = {name: each for name, each in recipe.items() if name not in {"threshold", "kinds"}}
        measured = {name: each for name, each in recipe["measured"].items() if name != "positive_od"}
        return rest | {"model": {**recipe["model"], "classes": None}, "measured": measured}

    return there != wanted and finding(there) == finding(wanted)


def begin_anew(work: WorkFolder, done: Done, *, was_prediction: bool) -> None:
    """Remove what is left of an earlier result; ``cells.*`` only in a folder that held a prediction."""
    work.save(own=asdict(done), finished=False, files=(), seconds=0.0)
    for path in work.path.glob("cells.*") if was_prediction else ():  # further formats of the old result
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (work.path / SHARDS).mkdir(exist_ok=True)
    sweep(work.path, done)


def sweep(folder: Path, done: Done) -> None:
    """Remove shards that are not of the result, files that only a resume needs, and temporary files."""
    named = {shard.file.name for shard in done.shards}
    named |= {file.name for each in done.kept for file in (each.file, each.features)}
    strays = ("*.parquet", "*.npy", "*.found.json", "*.tissue.npz", ".*.part.*")  # some of 0.2.0 on a cluster
    for pattern in (*(f"{SHARDS}/{each}" for each in strays), ".*.part.*"):
        for path in folder.glob(pattern):
            if path.relative_to(folder).as_posix() not in named:
                path.unlink(missing_ok=True)
    for path in folder.glob(".*.part"):
        shutil.rmtree(path, ignore_errors=True)
