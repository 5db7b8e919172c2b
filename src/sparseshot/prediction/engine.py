"""Tiles through the network: reading ahead of it, finding behind it."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.images.slide import Box, Slide
from sparseshot.images.tiles import Tile
from sparseshot.models.finder import Finder
from sparseshot.models.windows import Band, Window
from sparseshot.prediction.model import Model
from sparseshot.prediction.reading import read_tiles

_BEHIND = 4
"""Windows and bands that may wait to be worked on: a bound on memory."""


@dataclass(frozen=True)
class Progress:
    """How far it is.

    Attributes:
        tiles: looked at so far, of ``of_tiles``; those of an earlier start are not counted.
        of_tiles: to be looked at by this start.
        mm2: area of these tiles.
        cells: found so far, on the slide.
        seconds: since the start.
    """

    tiles: int
    of_tiles: int
    mm2: float
    cells: int
    seconds: float


@dataclass(frozen=True)
class Throughput:
    """How fast, not what: none of these changes a result.

    Attributes:
        batch: tiles that go through the network at once.
        threads: that read ahead.
        ahead: tiles read ahead; a bound on memory.
    """

    batch: int = 1
    threads: int = 2
    ahead: int = 4


DEFAULT_PACE = Throughput()


@dataclass
class Engine:
    """One pass over some bands of a slide.

    Attributes:
        slide: to be looked at.
        model: to look with.
        finder: turns what it says into cells.
        pace: how fast.
        carried: cells that the band before left undecided.
        cells: decided so far.
    """

    slide: Slide
    model: Model
    finder: Finder
    pace: Throughput
    carried: Cells
    cells: int = 0

    def run(
        self,
        bands: Sequence[Band],
        close: Callable[[Band, Cells, Cells, dict[Box, str]], None],
        report: Callable[[Progress], None] | None = None,
    ) -> None:
        """Look at every tile of the bands, from the first to the last.

        Args:
            bands: in their order.
            close: called once for each band, in order, in another thread: with the cells that are decided,
                those carried over to the next band, and the places that could not be read.
            report: called after every batch.
        """
        boxes = (tile.padded for band in bands for _, tile in band.tiles)
        ahead = self.pace.ahead + self.pace.batch
        images = read_tiles(self.slide, boxes, mpp=self.model.mpp, threads=self.pace.threads, ahead=ahead)
        behind = ThreadPoolExecutor(1, thread_name_prefix="find")
        waiting: deque[Future[Any]] = deque()
        tell = self._teller(sum(len(window.tiles) for band in bands for window in band.windows), report)
        try:
            for band in bands:
                found: list[Future[Cells]] = []
                broken: dict[Box, str] = {}
                for window, parts in self._looked_at(band, images, broken, tell):
                    found.append(behind.submit(self.finder.find, window, parts))
                    waiting.append(found[-1])
                    _wait(waiting, _BEHIND)
                waiting.append(behind.submit(self._close, band, found, broken, close))
            _wait(waiting, 0)
        finally:
            images.close()
            behind.shutdown(cancel_futures=True)

    def _looked_at(
        self,
        band: Band,
        images: Iterator[tuple[NDArray[np.uint8], dict[Box, str]]],
        broken: dict[Box, str],
        tell: Callable[[Sequence[tuple[Window, Tile]]], None],
    ) -> Iterator[tuple[Window, list[tuple[Tensor, ...]]]]:
        """Return each window of a band with its tiles, once all of them were predicted."""
        parts: list[tuple[Tensor, ...]] = []
        tiles = band.tiles
        # A batch never holds tiles of two bands, so that it is the same batch after a resume.
        while batch := list(islice(tiles, self.pace.batch)):
            pixels, holes = zip(*islice(images, len(batch)), strict=True)
            taken = self.finder.reduce(self.model(np.stack(pixels)))
            for index, (window, tile) in enumerate(batch):
                broken |= _own(holes[index], tile.core.meet(window.core))
                parts.append(tuple(each[index] for each in taken))
                if len(parts) == len(window.tiles):
                    yield window, parts
                    parts = []
            tell(batch)

    def _teller(
        self, of_tiles: int, report: Callable[[Progress], None] | None
    ) -> Callable[[Sequence[tuple[Window, Tile]]], None]:
        start, done, mm2 = time.perf_counter(), 0, 0.0
        pixel_mm2 = (self.model.mpp / 1000) ** 2

        def tell(batch: Sequence[tuple[Window, Tile]]) -> None:
            nonlocal done, mm2
            done += len(batch)
            mm2 += (
                sum(window.core.width * window.core.height / len(window.tiles) for window, _ in batch)
                * pixel_mm2
            )
            if report:
                report(Progress(done, of_tiles, mm2, self.cells, time.perf_counter() - start))

        return tell

    def _close(
        self,
        band: Band,
        found: Iterable[Future[Cells]],
        broken: dict[Box, str],
        close: Callable[[Band, Cells, Cells, dict[Box, str]], None],
    ) -> None:
        """Settle a band; runs after its windows, because one thread does both in order."""
        cells = Cells.concatenate([self.carried, *(each.result() for each in found)])
        decided, self.carried = self.finder.settle(cells, next_y0=band.next_y0)
        self.cells += len(decided)
        close(band, decided, self.carried, broken)


def _own(pieces: dict[Box, str], core: Box) -> dict[Box, str]:
    """Keep what lies in the core: each place is in one core, however many tiles meet it in their margin."""
    own = {piece.meet(core): reason for piece, reason in pieces.items()}
    return {place: reason for place, reason in own.items() if place.width and place.height}


def _wait(waiting: deque[Future[Any]], most: int) -> None:
    """Wait until at most so many are left; an error in one of them is raised here."""
    while len(waiting) > most:
        waiting.popleft().result()
