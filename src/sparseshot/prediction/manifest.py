"""The manifest of an output folder: its identity, its shards, its progress."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self, get_args

import numpy as np

from sparseshot import __version__
from sparseshot.errors import FormatError, OutputError
from sparseshot.files import read_as, write_json
from sparseshot.images.slide import Box, Grid
from sparseshot.models.windows import WindowLayout
from sparseshot.prediction.compiled_network import EngineName

MANIFEST = "manifest.json"
SHARDS, UNDECIDED, UNFINISHED = "cells", "undecided", "unfinished"
"""The folder of shards, and the states of those that are removed at the end: see :func:`shard_name`."""


def shard_name(band: int, state: str = "") -> str:
    """Return the name of a band's table.

    Args:
        band: its index.
        state: empty for the result, :data:`UNDECIDED` for cells that the next band decides,
            :data:`UNFINISHED` for cells that will get further measurements.

    >>> shard_name(3), shard_name(3, UNDECIDED)
    ('cells/00003.parquet', 'cells/00003.undecided.parquet')
    """
    return f"{SHARDS}/{band:05d}{state and '.'}{state}.parquet"


@dataclass(frozen=True)
class File:
    """A file of the output.

    Attributes:
        name: relative to the folder.
        sha256: of its bytes.
    """

    name: str
    sha256: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"it names {self.name!r}, which lies elsewhere")

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Return the record of an existing file."""
        with (folder / name).open("rb") as file:
            return cls(name, hashlib.file_digest(file, "sha256").hexdigest())

    def is_in(self, folder: Path) -> bool:
        """Return whether the file is present and unchanged."""
        try:
            return File.of(folder, self.name) == self
        except OSError:
            return False


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

    def is_sound(self, place: int, folder: Path) -> bool:
        """Return whether this is the shard of the band at a place, and its table is whole."""
        return self.band == place and self.file.is_in(folder)


@dataclass(frozen=True)
class Manifest:
    """Contents of an output folder.

    Attributes:
        identity: everything that decides the result: slide, model, threshold and so on.
        layout: sizes of tiles and windows, which decide how cells are spread over shards.
        bands: number of shards in the end.
        shards: the finished ones, in order.
        files: exports of all shards.
        finished: everything is written.
        plan: a hash of what belongs to each band, which the tissue decides; empty until a band is finished.
        format: of the file.
        version: of the format.
        sparseshot: the version that wrote it.
    """

    identity: Mapping[str, Any]
    layout: WindowLayout
    bands: int = 0
    shards: tuple[Shard, ...] = ()
    files: tuple[File, ...] = ()
    finished: bool = False
    plan: str = ""
    format: Literal["sparseshot prediction"] = "sparseshot prediction"
    version: Literal[1] = 1
    sparseshot: str = __version__

    def __post_init__(self) -> None:
        slide = self.identity.get("slide")
        if not isinstance(slide, Mapping) or not isinstance(slide.get("fingerprint"), str):
            raise ValueError("it has no slide fingerprint")

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Every place that could not be read."""
        return tuple(place for shard in self.shards for place in shard.broken)

    def is_of(self, slide: Mapping[str, Any]) -> bool:
        """Return whether this is the result of a slide, given its identity.

        A result with unreadable places is also that of a slide which differs by its fingerprint only: its
        file was mended.
        """
        own = self.identity["slide"]
        return own == slide or (bool(self.broken) and own | {"fingerprint": slide["fingerprint"]} == slide)

    def is_by(self, model: str) -> bool:
        """Return whether this is the result of a model, given its fingerprint."""
        return bool(self.identity["model"]["fingerprint"] == model)

    def save(self, folder: Path) -> None:
        """Write atomically."""
        write_json(folder / MANIFEST, self)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the manifest of a folder; None if there is none."""
        path = folder / MANIFEST
        if not path.exists():
            return None
        try:
            manifest = read_as(path, cls)
        except FormatError as error:
            reason = f"is not a manifest of this sparseshot ({error.problem})"
            raise FormatError(path, f"{reason}; choose another --out, or use --force") from None
        if "engine" in manifest.identity:
            return manifest
        return replace(
            manifest, identity={**manifest.identity, "engine": "eager"}
        )  # before there were others

    def sound(self, folder: Path) -> Self:
        """Return the manifest without files that were damaged or removed since."""
        count = 0
        while count < len(self.shards) and self.shards[count].is_sound(count, folder):
            count += 1
        if count == len(self.shards) == self.bands:
            return replace(self, finished=self.finished and all(file.is_in(folder) for file in self.files))
        # A resume needs the cells that the last good band left undecided.
        while count and not self.shards[count - 1].carried.is_in(folder):
            count -= 1
        return replace(self, shards=self.shards[:count], finished=False)


def recorded_engine(folder: Path) -> EngineName | None:
    """Return the engine of the result in a folder; None if there is none, or it cannot be read."""
    try:
        manifest = Manifest.load(folder)
    except FormatError:
        return None
    engine = None if manifest is None else manifest.identity["engine"]
    return engine if engine in get_args(EngineName) else None


def claim(
    folder: Path,
    identity: Mapping[str, Any],
    layout: WindowLayout,
    *,
    force: bool,
    is_readable: Callable[[Broken], bool],
) -> Manifest:
    """Create the manifest of a folder, or return the one that is there.

    A result with unreadable places begins anew once any of them can be read: with them, the tissue and
    everything around them may change.

    Raises:
        OutputError: if it holds the result of another model, threshold or slide, or other files.
    """
    try:
        there = Manifest.load(folder)
    except FormatError:
        if not force:
            raise
        there = None
    identity = json.loads(json.dumps(identity))  # as it will be read back
    shards = folder / SHARDS
    if there is not None and there.identity == identity and not any(map(is_readable, there.broken)):
        shards.mkdir(exist_ok=True)  # it was killed before
        return there.sound(folder)
    is_mended = (
        there is not None
        and there.is_of(identity["slide"])
        and {**there.identity, "slide": identity["slide"]} == identity
    )
    if there is not None and not (force or is_mended):
        difference = _difference(there.identity, identity)
        raise OutputError(folder, f"{difference}; choose another --out, or replace it with --force")
    if (
        there is None
        and not force
        and folder.is_dir()
        and any(not p.name.startswith(".") for p in folder.iterdir())
    ):
        raise OutputError(
            folder,
            "holds files that are no prediction; choose another --out, or write beside them with --force",
        )
    if not shards.resolve().is_relative_to(folder.resolve()):
        raise OutputError(shards, "is a link that leads elsewhere; remove it")
    # The folder has a manifest at every moment, else it would hold files that are no prediction after a kill.
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(identity, layout)
    manifest.save(folder)
    for path in folder.glob("cells.*") if there is not None else ():  # what --also wrote of the old result
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shards.mkdir(exist_ok=True)
    sweep(folder, manifest)
    return manifest


def _difference(there: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> str:
    for name in wanted:
        old, new = there.get(name), wanted[name]
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old != new:
            return _difference(old, new, f"{prefix}{name} ")
        if old != new:
            return f"holds a result with another {prefix}{name}: {old} instead of {new}"
    return "holds a result with other settings"


def sweep(folder: Path, manifest: Manifest) -> None:
    """Remove shards that the manifest does not name, files that only a resume needs, and temporary files."""
    named = {shard.file.name for shard in manifest.shards}
    strays = ("*.parquet", "*.found.json", "*.tissue.npz", ".*.part.*")  # some only of 0.2.0 on a cluster
    for pattern in (*(f"{SHARDS}/{each}" for each in strays), ".*.part.*"):
        for path in folder.glob(pattern):
            if path.relative_to(folder).as_posix() not in named:
                path.unlink(missing_ok=True)
    for path in folder.glob(".*.part"):
        shutil.rmtree(path, ignore_errors=True)
