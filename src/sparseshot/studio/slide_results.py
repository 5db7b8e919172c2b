"""Results of a project: what runs and opened folders of ``predict`` found on each slide."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells, read_cells
from sparseshot.cells.formats.geoparquet import read_places
from sparseshot.errors import DataNotFoundError, FormatError
from sparseshot.files import read_json, write_json
from sparseshot.prediction.manifest import MANIFEST, Manifest
from sparseshot.studio.found_cells import Area, FoundCells
from sparseshot.work.folder import STATE

VIEWS = ".views"
"""Ending of the folder with the cells of parts that were in view, which are predicted before the rest."""

RESULT_ID = "^[rf][0-9]{1,9}$"
"""How the page names a result: of a run by its number, or of an opened folder by its place among them."""

_REST = 10.0
T = TypeVar("T")


def run_of(name: str) -> int | None:
    """Return the number of the run that a result is of; None for a folder that was opened with its slide.

    >>> run_of("r3"), run_of("f0")
    (3, None)
    """
    return int(name[1:]) if name.startswith("r") else None


@dataclass(frozen=True)
class SlideResult:
    """What a model has found on a slide so far.

    Attributes:
        folder: of the prediction.
        mpp: µm per level-0 pixel.
    """

    folder: Path
    mpp: float

    @property
    def views(self) -> Path:
        """Folder with the cells of parts that were in view; may be missing."""
        return self.folder.with_name(self.folder.name + VIEWS)

    def add_view(self, area: Area, cells: Cells, features: NDArray[np.floating] | None = None) -> None:
        """Write the cells of a part that is in view, and their features."""
        self.views.mkdir(parents=True, exist_ok=True)
        file = self.views / f"{len(self.areas_in_view()):04d}.parquet"
        cells.write(file)
        if features is not None:
            np.save(file.with_suffix(".npy"), features.astype(np.float16), allow_pickle=False)
        write_json(file.with_suffix(".json"), list(area))

    @property
    def version(self) -> str:
        """Name of the present state; empty if there is nothing yet."""
        stamps = []
        last = max(self.views.glob("*.json"), default=self.views / "none")
        for path in (last, self.folder / MANIFEST, self.folder / STATE):
            try:
                stamps.append(f"{path.stat().st_mtime_ns:x}")
            except OSError:
                stamps.append("")
        return "-".join(stamps) if any(stamps) else ""

    def manifest(self) -> Manifest | None:
        """Return the manifest; None before the first shard."""
        return Manifest.load(self.folder)

    @property
    def model(self) -> Mapping[str, Any]:
        """What the result says about its model; empty before the first shard."""
        manifest = self.manifest()
        return {} if manifest is None else manifest.identity.get("model", {})

    def parts(self) -> list[Path]:
        """Return the tables that make up the result: parts in view, unless all is done, and shards.

        Where candidates were kept with their features, these: the page shows what a lower threshold would
        find.
        """
        manifest = self.manifest()
        own = (manifest.done.kept or manifest.shards) if manifest else ()
        shards = [self.folder / each.file.name for each in own]
        is_partial = manifest is None or not manifest.finished
        return [*self.areas_in_view(), *shards] if is_partial else shards

    def index(self) -> FoundCells:
        """Read all there is and sort it by place.

        Raises:
            DataNotFoundError: there is nothing yet.
        """
        begun, version = time.monotonic(), self.version
        if not version:
            raise DataNotFoundError(self.folder, "nothing has been found yet")
        try:
            files = self.parts()
            cells, rows, features = self._joined(files, partial(read_places, measurements=False))
            found = FoundCells.of(cells, mpp=self.mpp)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise FormatError(self.folder, f"cannot be read ({error})") from error
        now = time.monotonic()
        return replace(
            found,
            files=tuple(files),
            source=rows[found.source],
            features=None if features is None else features[found.source],
            version=version,
            until=now + _REST * (now - begun),
        )

    def is_shown_by(self, found: FoundCells) -> bool:
        """Return whether an index shows the present state, or is too new to be made again.

        A growing result is read again only after ten times its reading time: otherwise millions of cells
        would be read for every shard.
        """
        return found.version == self.version or (
            time.monotonic() < found.until and not is_finished(self.folder)
        )

    def _features(self, files: list[Path], rows: NDArray[np.int32]) -> NDArray[np.float16] | None:
        """Read the features of some rows of tables; None if they were not kept."""
        manifest = self.manifest()
        own = manifest.done.kept if manifest else ()
        kept = {self.folder / each.file.name: self.folder / each.features.name for each in own}
        try:
            parts = [np.load(kept.get(file, file.with_suffix(".npy")), allow_pickle=False) for file in files]
            features: NDArray[np.float16] = np.concatenate(parts)
            return features if len(rows) == len(features) else features[rows]
        except (OSError, ValueError, IndexError):
            return None

    def _joined(
        self, files: list[Path], read: Callable[[Path], Cells]
    ) -> tuple[Cells, NDArray[np.int32], NDArray[np.float16] | None]:
        """Read tables; a later part in view replaces earlier ones, and shards.

        Return the cells that stay, their rows, and their features.
        """
        parts, areas = [read(file) for file in files], self.areas_in_view()
        kept = [np.ones(len(part), bool) for part in parts]
        for number, file in enumerate(files):
            for other in range(len(parts)) if file in areas else ():
                if other < number or files[other] not in areas:
                    low, high = np.reshape(areas[file], (2, 2))
                    kept[other] &= ((parts[other].xy < low) | (parts[other].xy > high)).any(axis=1)
        cells = Cells.concatenate(parts)
        rows = np.flatnonzero(np.concatenate([*kept, np.empty(0, bool)])).astype(np.int32)
        return (cells if len(rows) == len(cells) else cells[rows]), rows, self._features(files, rows)

    def areas_in_view(self) -> dict[Path, Area]:
        """Return the areas that were predicted because they were in view, by their tables."""
        areas: dict[Path, Area] = {}
        for path in sorted(self.views.glob("*.json")):
            x0, y0, x1, y1 = map(float, read_json(path))
            areas[path.with_suffix(".parquet")] = x0, y0, x1, y1
        return areas

    def has_predicted(self, region: shapely.Geometry) -> bool:
        """Return whether a region has been predicted: in parts in view, or with the whole slide."""
        areas = [shapely.box(*area) for area in self.areas_in_view().values()]
        return is_finished(self.folder) or bool(shapely.union_all(areas).covers(region))

    def cells(self) -> tuple[Cells, NDArray[np.float16] | None]:
        """Read all there is, outlines included, and the features of each cell."""
        files = self.parts()
        if not files:
            raise DataNotFoundError(self.folder, "nothing has been found yet")
        cells, _, features = self._joined(files, read_cells)
        return cells, features


def is_finished(folder: Path) -> bool:
    """Return whether a prediction is finished."""
    manifest = Manifest.load(folder)
    return manifest is not None and manifest.finished


class Kept(Generic[T]):
    """The most recently used values; only who asks for the same one waits while it is made.

    >>> kept = Kept[int](1)
    >>> kept.get("a", lambda: 1), kept.get("a", lambda: 2), kept.get("a", lambda: 2, lambda old: old > 1)
    (1, 1, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[Lock, list[T]]] = OrderedDict()
        self._mutex = Lock()

    def clear(self) -> None:
        """Forget all values."""
        with self._mutex:
            self._values.clear()

    def get(self, key: Hashable, make: Callable[[], T], is_valid: Callable[[T], bool] = lambda _: True) -> T:
        """Return the value of a key, made by ``make`` if none is kept that is valid."""
        with self._mutex:
            lock, value = self._values.setdefault(key, (Lock(), []))
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        with lock:
            if not (value and is_valid(value[0])):
                value[:] = [make()]
            return value[0]
