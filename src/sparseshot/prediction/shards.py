"""Shards of a prediction: each band is written once, when the neighbours of its cells are known.

If asked for, the candidates of a band are kept with their features, so that kinds and threshold can change.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cells.formats.geoparquet import read_own, read_places, write_with
from sparseshot.cells.formats.qupath_write import QuPathArchive
from sparseshot.cells.neighbours import FAR_UM, neighbour_measurements
from sparseshot.errors import DataNotFoundError, FormatError, OutputError
from sparseshot.files import replacing
from sparseshot.images.slide import Box
from sparseshot.models.finder import SlideFrame
from sparseshot.models.kind_head import SURROUNDINGS_UM, KindHead
from sparseshot.models.windows import Band
from sparseshot.prediction.manifest import (
    CANDIDATES,
    FEATURES,
    RESULT,
    UNDECIDED,
    UNFINISHED,
    Broken,
    Done,
    Kept,
    Manifest,
    Shard,
    shard_name,
)
from sparseshot.prediction.measuring import Measuring
from sparseshot.work import File, WorkFolder

_CONTEXT_UM = 500.0
"""Bands this near to a band are searched for the neighbours of its cells."""

_OUTSIDE_UM = 10.0
"""How far a detection may lie outside the tile in which it was found; outlines reach as far as the halo."""


_MEASUREMENT = "kind feature "

Features = NDArray[np.float16]
"""``(N, F)`` of found cells."""


class _Found(NamedTuple):
    """A band whose cells are decided."""

    band: int
    cells: Cells
    carried: Cells
    broken: tuple[Broken, ...]
    kept: Kept | None


@dataclass
class ShardWriter:
    """Writes the shards of a slide in order. A shard counts once the state of the folder names it.

    Cells are measured against their neighbours as soon as the bands around theirs are decided, and written
    then. A cell may be so lonely that its nearest neighbour can lie in a band that is not decided yet; its
    shard is completed at the end.

    Attributes:
        work: the folder.
        done: the shards so far, and what is kept.
        frame: of the slide.
        bands: all of them.
        archive: receives the cells of complete shards.
        measuring: what is measured of each cell; here its neighbours, and whether it is positive.
        threshold: score of a cell, where candidates with features are taken, which are kept; else None.
            Their kinds are told once the cells around them are known.
    """

    work: WorkFolder
    done: Done
    frame: SlideFrame
    bands: Sequence[Band]
    archive: QuPathArchive
    measuring: Measuring
    threshold: float | None = None
    _without_kinds: deque[_Found] = field(default_factory=deque, init=False)
    _waiting: deque[_Found] = field(default_factory=deque, init=False)
    _features: dict[int, tuple[NDArray[np.float64], Features]] = field(default_factory=dict, init=False)
    _places: dict[int, Cells] = field(default_factory=dict, init=False)
    _boxes: NDArray[np.float64] = field(init=False)

    @property
    def shown(self) -> SlideFrame:
        """The frame of the result."""
        return self.measuring.shown(self.frame)

    def __post_init__(self) -> None:
        cores = [[window.core for window in band.windows] for band in self.bands]
        boxes = [[*np.min(each, axis=0)[:2], *np.max(each, axis=0)[2:]] for each in cores]
        self._boxes = np.array(boxes, float).reshape(-1, 4) * self.frame.grid.mpp
        written = len(self.done.shards)
        if self.measuring.level == "all" and 0 < written < len(self.bands):
            near = [index for index in self._around(written, _CONTEXT_UM) if index < written]
            self._places = {index: self._read_places(index) for index in near}

    @property
    def cells(self) -> int:
        """Cells in the shards that are done."""
        return sum(shard.cells for shard in self.done.shards)

    def carried(self) -> Cells:
        """Read the cells that the last finished band left undecided."""
        if not self.done.shards:
            return self.frame.no_cells()
        return read_cells(self.work.path / self.done.shards[-1].carried.name)

    def close(self, band: Band, cells: Cells, carried: Cells, broken: dict[Box, str]) -> None:
        """Take the cells of a band, after those of all bands before it."""
        if band.index != self._next_band:  # an earlier one failed
            raise OutputError(
                self.work.path, f"the shard before {band.index} is missing; run the same command again"
            )
        places = tuple(Broken.of(box, why, self.frame.grid) for box, why in _rows(broken).items())
        if self.threshold is None:
            self._take(_Found(band.index, cells, carried, places, None))
            return
        cells, features = without_features(cells)
        record = replace(keep(self.work.path, band.index, cells, features), broken=places)
        self._tell_kinds(_Found(band.index, cells, carried, places, record), features)

    def replay(self) -> None:
        """Make the shards that are missing of what is kept, instead of by the network."""
        for index, record in enumerate(self.done.kept):
            if index == self._next_band:
                cells, features = kept(self.work.path, record)
                self._tell_kinds(_Found(index, cells, cells[:0], record.broken, None), features)

    @property
    def _next_band(self) -> int:
        return len(self.done.shards) + len(self._waiting) + len(self._without_kinds)

    def _tell_kinds(self, found: _Found, features: Features) -> None:
        """Tell the kinds of the cells around which all others are known with this band."""
        cells, own = chosen(found.cells, features, self.threshold)
        self._features[found.band] = cells.xy, own
        self._without_kinds.append(found._replace(cells=cells))
        head = self.frame.kinds
        # How far the kind of a cell depends on others; a head that looks at one cell only needs its own band.
        looks_around = head is not None and head.looks_around
        reach_um = SURROUNDINGS_UM + 2 * self._outside_um if looks_around else -1.0
        for first, around in self._ready(self._without_kinds, reach_um, found.band):
            self._take(first if head is None else self._with_kinds(first, head, around))

    def _with_kinds(self, found: _Found, head: KindHead, around: Sequence[int]) -> _Found:
        for each in around:
            if each not in self._features:  # of an earlier start
                record = self.done.kept[each]
                table, own = chosen(*kept(self.work.path, record, outlines=False), self.threshold)
                self._features[each] = table.xy, own
        known = {each: own for each, own in self._features.items() if each >= min(around)}
        self._features = known
        xy, features = (np.concatenate(each) for each in zip(*(known[k] for k in around), strict=True))
        start = sum(len(known[each][0]) for each in around if each < found.band)
        logits = head.logits(features, xy * self.frame.mpp)[start : start + len(found.cells)]
        return found._replace(cells=head.named(found.cells, logits))

    def _take(self, found: _Found) -> None:
        """Write the bands whose neighbours are known with this one."""
        cells = self.measuring.scored(found.cells, self.shown)
        self._waiting.append(found._replace(cells=cells))
        if self.measuring.level == "all":
            self._places[found.band] = replace(cells, outline=None, measurements={})
        reach_um = FAR_UM + 2 * self._outside_um if self.measuring.level == "all" else -1.0
        for first, _ in self._ready(self._waiting, reach_um, found.band):
            self._write(first, found.carried, decided=found.band)

    def _ready(
        self, waiting: deque[_Found], reach_um: float, decided: int
    ) -> Iterator[tuple[_Found, list[int]]]:
        """Take the bands around which all others are decided, each with those around it."""
        while waiting and max(around := self._around(waiting[0].band, reach_um)) <= decided:
            yield waiting.popleft(), around

    def complete(self) -> None:
        """Measure the neighbours of all cells whose shards wait for them, and fill the archive."""
        shards, path = self.done.shards, self.work.path
        if any(shard.file.name != shard_name(shard.band) for shard in shards):
            parts = [self._read_places(shard.band) for shard in shards]
            columns = self._neighbours(Cells.concatenate(parts))
            start, finished = 0, []
            for shard, part in zip(shards, parts, strict=True):
                rows, name = slice(start, start := start + len(part)), shard_name(shard.band)
                if shard.file.name != name:
                    own = {each: columns[each][rows] for each in columns}
                    write_with(path / shard.file.name, path / name, own)
                finished.append(replace(shard, file=File.of(path, name)))
            self.done = replace(self.done, shards=tuple(finished))
        self._fill_archive()

    def _write(self, found: _Found, carried: Cells, *, decided: int) -> None:
        cells, is_complete = found.cells, True
        if self.measuring.level == "all":
            columns = self._certain_neighbours(found.band, carried, decided=decided)
            is_complete = columns is not None
            cells = replace(cells, measurements={**cells.measurements, **(columns or {})})
            near = self._around(found.band, 3 * _CONTEXT_UM)
            self._places = {band: cells for band, cells in self._places.items() if band in near}
        shard = Shard(
            band=found.band,
            cells=len(cells),
            file=self._file(shard_name(found.band, RESULT if is_complete else UNFINISHED), cells),
            carried=self._file(shard_name(found.band, UNDECIDED), found.carried),
            broken=found.broken,
        )
        self.done = replace(self.done, shards=(*self.done.shards, shard))
        if found.kept is not None:
            self.done = replace(self.done, kept=(*self.done.kept, found.kept))
        self.work.save(own=asdict(self.done))
        self._fill_archive(cells)

    def _fill_archive(self, newest: Cells | None = None) -> None:
        """Add the complete shards that are not in the archive yet, such as those of an earlier start."""
        for shard in self.done.shards[self.archive.shards :]:
            if shard.file.name != shard_name(shard.band):
                return
            own = newest if shard is self.done.shards[-1] else None
            self.archive.add(read_own(self.work.path / shard.file.name) if own is None else own)

    def _file(self, name: str, cells: Cells) -> File:
        write_cells(cells, self.work.path / name)
        return File.of(self.work.path, name)

    def _read_places(self, band: int) -> Cells:
        return read_places(self.work.path / self.done.shards[band].file.name, measurements=False)

    def _around(self, band: int, reach_um: float) -> list[int]:
        """Return the bands within a distance of a band, itself included; itself alone if it is negative."""
        own = self._boxes[band].reshape(2, 2)
        near = _gaps(self._boxes, own).max(axis=1) <= reach_um
        near[band] = True
        return np.flatnonzero(near).tolist()

    @property
    def _outside_um(self) -> float:
        return _OUTSIDE_UM + self.done.layout.halo_px * self.frame.grid.mpp

    def _neighbours(self, cells: Cells) -> dict[str, NDArray[np.float32]]:
        return neighbour_measurements(cells.xy, cells.label, classes=self.shown.classes, mpp=self.shown.mpp)

    def _certain_neighbours(
        self, band: int, carried: Cells, *, decided: int
    ) -> dict[str, NDArray[np.float32]] | None:
        """Return the neighbours of the cells of a band; None if bands that are not searched may change them.

        Args:
            band: index of the band.
            carried: cells that are not decided yet.
            decided: last band that is decided, but for those cells.
        """
        searched = [each for each in self._around(band, _CONTEXT_UM) if each in self._places]
        cells = Cells.concatenate([self._places[each] for each in searched])
        start = sum(len(self._places[each]) for each in searched if each < band)
        rows = slice(start, start + len(self._places[band]))
        columns = {name: column[rows] for name, column in self._neighbours(cells).items()}
        um = self._places[band].xy * self.frame.mpp
        # How far around each cell all others are known.
        known = np.full(len(um), np.inf)
        if len(carried) and len(um):
            known = KDTree(carried.xy * self.frame.mpp).query(um)[0]
        others = np.setdiff1d(np.arange(len(self.bands)), [each for each in searched if each <= decided])
        for box in self._boxes[others]:
            corners = np.column_stack([um, um])
            gap = np.hypot(*_gaps(corners, box.reshape(2, 2)).T) - self._outside_um
            known = np.minimum(known, gap)
        is_certain = known > FAR_UM
        for name, column in columns.items():
            if name.startswith("Distance"):
                is_certain &= (column < known) | np.isposinf(known)
        return columns if is_certain.all() else None


def _gaps(boxes: NDArray[np.float64], corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``(N, 2)`` distances in x and y between boxes ``(N, 4)`` and the box of two corners."""
    gaps: NDArray[np.float64] = np.maximum(corners[0] - boxes[:, 2:], boxes[:, :2] - corners[1]).clip(0)
    return gaps


def _rows(broken: dict[Box, str]) -> dict[Box, str]:
    """Join places side by side; the first reason stays.

    >>> _rows({Box(0, 0, 64, 64): "a", Box(64, 0, 128, 64): "b", Box(0, 64, 64, 128): "c"})
    {Box(x0=0, y0=0, x1=128, y1=64): 'a', Box(x0=0, y0=64, x1=64, y1=128): 'c'}
    """
    rows: list[tuple[Box, str]] = []
    for box in sorted(broken, key=lambda box: (box.y0, box.y1, box.x0)):
        last = rows[-1][0] if rows else None
        if last is not None and (last.y0, last.y1, last.x1) == (box.y0, box.y1, box.x0):
            rows[-1] = (last._replace(x1=box.x1), rows[-1][1])
        else:
            rows.append((box, broken[box]))
    return dict(rows)


def with_features(cells: Cells, features: NDArray[np.floating]) -> Cells:
    """Return cells that carry their features as measurements, wherever rows are chosen."""
    columns = {f"{_MEASUREMENT}{k}": column for k, column in enumerate(np.asarray(features, np.float32).T)}
    return replace(cells, measurements={**cells.measurements, **columns})


def without_features(cells: Cells) -> tuple[Cells, Features]:
    """Return the cells as they were, and their features."""
    columns = [column for name, column in cells.measurements.items() if name.startswith(_MEASUREMENT)]
    rest = {name: each for name, each in cells.measurements.items() if not name.startswith(_MEASUREMENT)}
    features = np.array(columns, np.float16).reshape(len(columns), len(cells)).T
    return replace(cells, measurements=rest), np.ascontiguousarray(features)


def keep(folder: Path, band: int, cells: Cells, features: Features) -> Kept:
    """Write the found cells of a band, and their features."""
    table, numbers = shard_name(band, CANDIDATES), shard_name(band, FEATURES)
    write_cells(cells, folder / table)
    with replacing(folder / numbers) as temporary, temporary.open("wb") as file:
        np.save(file, features, allow_pickle=False)
    return Kept(File.of(folder, table), File.of(folder, numbers))


def kept(folder: Path, record: Kept, *, outlines: bool = True) -> tuple[Cells, Features]:
    """Read the found cells of a band, and their features."""
    table = folder / record.file.name
    cells = read_own(table) if outlines else read_places(table, measurements=False)
    return cells, _features(folder / record.features.name, len(cells))


def chosen(cells: Cells, features: Features, threshold: float | None) -> tuple[Cells, Features]:
    """Return the candidates that score enough; a table without any has no scores."""
    if cells.score is None or threshold is None:
        return cells, features
    rows = cells.score >= np.float32(threshold)
    return cells[rows], features[rows]


def found_with_features(
    folder: Path | str, *, threshold: float | None = None, outlines: bool = False
) -> tuple[Cells, Features]:
    """Read the cells that a prediction with ``--features`` found, before kinds, and the features of each.

    Args:
        folder: of one slide.
        threshold: lowest score; candidates are kept from half the threshold of the prediction up. None: that
            of the result.
        outlines: read outlines and measurements too.
    """
    folder = Path(folder)
    manifest = Manifest.load(folder)
    if manifest is None or not manifest.keeps_all:
        raise DataNotFoundError(
            folder, "holds no finished prediction with features; predict the slide with --features"
        )
    lowest = manifest.identity["threshold"] if threshold is None else threshold
    parts = [chosen(*kept(folder, each, outlines=outlines), lowest) for each in manifest.done.kept]
    return Cells.concatenate([cells for cells, _ in parts]), np.concatenate([each for _, each in parts])


def _features(path: Path, cells: int) -> Features:
    try:
        features: Features = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FormatError(path, f"cannot be read as features ({error}); predict the slide again") from None
    if features.dtype != np.float16 or features.ndim != 2 or len(features) != cells:
        raise FormatError(path, f"has no features of {cells:,} cells; predict the slide again with --force")
    return features
