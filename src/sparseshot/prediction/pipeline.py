"""Tiles through the network: reading ahead of it, finding cells behind it."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.errors import SlideError
from sparseshot.images.damaged import read_undamaged
from sparseshot.images.readahead import read_ahead
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import Tile
from sparseshot.models.finder import Finder, Part
from sparseshot.models.inference import TILE_PX
from sparseshot.models.windows import Band, Window
from sparseshot.prediction.measuring import Measuring
from sparseshot.prediction.model import Model
from sparseshot.work import Event, Report, ignore

GPU_BATCH = 4
"""Tiles in a batch on a GPU; a CPU gains nothing from a second one."""

PIECE_PX = 64
"""Damage is located in squares of this side."""

_BEHIND = 4
"""Windows and bands that may wait for the finder: a bound on memory."""

_FINDERS = 2
"""Windows in which cells are found at a time, so that the last ones do not wait for each other."""

_Read = tuple[NDArray[np.uint8], dict[Box, str]]
"""Pixels of a tile, and the places in it that could not be read."""

_Computed = tuple[NDArray[np.uint8], dict[Box, str], Part]
"""The same, and what the network says of it."""


@dataclass(frozen=True)
class Throughput:
    """Settings of speed and memory; none of them changes which cells are found.

    Attributes:
        tile_px: largest side of a tile.
        batch: tiles per forward pass; None for one on a CPU and :data:`GPU_BATCH` elsewhere.
        threads: number of threads that read ahead, two tiles each.
    """

    tile_px: int = TILE_PX
    batch: int | None = None
    threads: int = 2


DEFAULT_THROUGHPUT = Throughput()


@dataclass
class TilePipeline:
    """One pass over some bands of a slide.

    Attributes:
        slide: the slide.
        model: the model.
        finder: turns its outputs into cells.
        measuring: what is measured of the cells.
        throughput: speed and memory.
        carried: cells that the previous band left undecided.
        cells: number of cells decided so far.
        region: cells outside are left out; None for none.
    """

    slide: Slide
    model: Model
    finder: Finder
    measuring: Measuring
    throughput: Throughput
    carried: Cells
    cells: int = 0
    region: shapely.Geometry | None = None
    _mm2: float = field(default=0.0, init=False)
    _tiles: int = field(default=0, init=False)

    def run(
        self,
        bands: Sequence[Band],
        close: Callable[[Band, Cells, Cells, dict[Box, str]], None],
        report: Report = ignore,
    ) -> None:
        """Predict every tile of the bands, from the first to the last.

        Args:
            bands: in order.
            close: called once for each band, in order, in another thread, with the decided cells, those
                carried over to the next band, and the places that could not be read.
            report: receives an event after every batch.
        """
        start, of_tiles = time.perf_counter(), sum(1 for band in bands for _ in band.tiles)
        boxes = (tile.padded for band in bands for _, tile in band.tiles)
        threads = self.throughput.threads
        ahead = 2 * threads + self._batch
        images = read_tiles(self.slide, boxes, mpp=self.model.mpp, threads=threads, ahead=ahead)
        computed = self._computed(bands, images)
        finding = ThreadPoolExecutor(_FINDERS, thread_name_prefix="find")
        closer = ThreadPoolExecutor(1, thread_name_prefix="close")
        waiting: deque[Future[Any]] = deque()

        def tell() -> None:
            seconds = time.perf_counter() - start
            values = {"mm2": self._mm2, "cells": self.cells, "seconds": seconds}
            shown = f"{self.cells:,} cells, {self._mm2 / max(seconds, 1e-9):.2f} mm²/s"
            report(Event("predicting", self._tiles, of_tiles, values, shown))

        try:
            for band in bands:
                found: list[Future[Cells]] = []
                broken: dict[Box, str] = {}
                for window, parts, tiles in self._predicted(band, computed, broken, tell):
                    found.append(finding.submit(self._found, window, parts, tiles))
                    waiting.append(found[-1])
                    _wait(waiting, _BEHIND)
                waiting.append(closer.submit(self._close, band, found, broken, close))
            _wait(waiting, 0)
        finally:
            computed.close()
            images.close()
            finding.shutdown(cancel_futures=True)
            closer.shutdown(cancel_futures=True)

    @property
    def _batch(self) -> int:
        return self.throughput.batch or (1 if self.model.device.type == "cpu" else GPU_BATCH)

    def _batches(self, band: Band) -> Iterator[list[tuple[Window, Tile]]]:
        """Yield the tiles of a band in batches.

        A batch never holds tiles of two bands, so that it is the same batch after a resume.
        """
        tiles = band.tiles
        while batch := list(islice(tiles, self._batch)):
            yield batch

    def _computed(self, bands: Sequence[Band], images: Iterator[_Read]) -> Generator[list[_Computed]]:
        """Yield the tiles batch by batch; one waits behind those that the model computes at a time."""
        under_way: deque[tuple[list[_Read], Future[Part]]] = deque()
        network = ThreadPoolExecutor(self.model.streams, thread_name_prefix="network")
        try:
            for batch in (batch for band in bands for batch in self._batches(band)):
                read = list(islice(images, len(batch)))
                under_way.append((read, network.submit(self._outputs, [pixels for pixels, _ in read])))
                if len(under_way) > self.model.streams:
                    yield _separated(*under_way.popleft())
            while under_way:
                yield _separated(*under_way.popleft())
        finally:
            network.shutdown(cancel_futures=True)

    def _outputs(self, pixels: list[NDArray[np.uint8]]) -> Part:
        return self.finder.reduce(self.model(np.stack(pixels)))

    def _predicted(
        self,
        band: Band,
        computed: Iterator[list[_Computed]],
        broken: dict[Box, str],
        tell: Callable[[], None],
    ) -> Iterator[tuple[Window, list[Part], list[NDArray[np.uint8]]]]:
        """Yield each window of a band with the parts and the pixels of its tiles."""
        parts: list[Part] = []
        seen: list[NDArray[np.uint8]] = []
        for batch in self._batches(band):
            for (window, tile), (pixels, holes, part) in zip(batch, next(computed), strict=True):
                broken |= _own(holes, tile.core.meet(window.core))
                parts.append(part)
                seen.append(pixels)
                if len(parts) == len(window.tiles):
                    yield window, parts, seen
                    parts, seen = [], []
                core_mm2 = window.core.width * window.core.height * (self.model.mpp / 1000) ** 2
                self._mm2 += core_mm2 / len(window.tiles)
            self._tiles += len(batch)
            tell()

    def _found(self, window: Window, parts: list[Part], tiles: list[NDArray[np.uint8]]) -> Cells:
        """Find the cells of a window, and measure them."""
        cells = self.finder.find(window, parts)
        return self.measuring.measured(cells, window, tiles, Grid.over(self.slide, self.model.mpp))

    def _close(
        self,
        band: Band,
        found: Iterable[Future[Cells]],
        broken: dict[Box, str],
        close: Callable[[Band, Cells, Cells, dict[Box, str]], None],
    ) -> None:
        """Settle a band, after its windows; one thread settles all bands in order."""
        cells = Cells.concatenate([self.carried, *(each.result() for each in found)])
        decided, self.carried = self.finder.settle(cells, next_y0=band.next_y0)
        if self.region is not None:
            decided = decided[shapely.intersects_xy(self.region, decided.xy)]
        self.cells += len(decided)
        close(band, decided, self.carried, broken)


def _separated(read: list[_Read], outputs: Future[Part]) -> list[_Computed]:
    """Wait for the outputs of a batch, and return each tile with its own."""
    of_batch = outputs.result()
    return [(*each, tuple(part[index] for part in of_batch)) for index, each in enumerate(read)]


def _own(pieces: dict[Box, str], core: Box) -> dict[Box, str]:
    """Return the pieces cut to the core: each place is in one core, but in the margin of several tiles."""
    own = {piece.meet(core): reason for piece, reason in pieces.items()}
    return {place: reason for place, reason in own.items() if place.width and place.height}


def _wait(waiting: deque[Future[Any]], most: int) -> None:
    """Wait until at most ``most`` are left; an error in one of them is raised here."""
    while len(waiting) > most:
        waiting.popleft().result()


def read_tiles(
    slide: Slide, boxes: Iterable[Box], *, mpp: float, threads: int, ahead: int
) -> Generator[tuple[NDArray[np.uint8], dict[Box, str]], None, None]:
    """Read boxes in order, ahead of their use; white where the slide is damaged.

    Yields the pixels and, for each square that cannot be read, the reason.
    """
    grid = Grid.over(slide, mpp)
    with closing(read_ahead(slide, grid, boxes, threads=threads, ahead=ahead)) as tiles:
        for box, pixels in tiles:
            if isinstance(pixels, SlideError):
                yield read_undamaged(slide, grid, box, piece_px=PIECE_PX)
            else:
                yield pixels, {}


def any_readable(slide: Slide, grid: Grid, box: Box) -> bool:
    """Return whether any of the squares that meet a box can be read."""
    for piece in box.blocks(PIECE_PX, PIECE_PX):  # whole, because a part of a bad square may be readable
        with suppress(SlideError):
            slide.read(grid, piece)
            return True
    return False
