"""Tiles through the network: reading ahead of it, finding behind it."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from sparseshot.cells import Cells
from sparseshot.images.slide import Box, Slide
from sparseshot.prediction.found import Finder
from sparseshot.prediction.model import Model
from sparseshot.prediction.plan import Band, Window
from sparseshot.prediction.reading import read_tiles

_BEHIND = 4
"""Windows and bands that may wait to be worked on: a bound on memory."""

T = TypeVar("T")


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
class Pace:
    """How fast, not what: none of these changes a result.

    Attributes:
        batch: tiles that go through the network at once.
        threads: that read ahead.
        ahead: tiles read ahead; a bound on memory.
    """

    batch: int = 1
    threads: int = 2
    ahead: int = 4


DEFAULT_PACE = Pace()


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
    pace: Pace
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
        start, done = time.perf_counter(), 0
        of_tiles = sum(len(window.tiles) for band in bands for window in band.windows)
        boxes = (tile.padded for band in bands for _, tile in band.tiles)
        pace = self.pace
        images = read_tiles(
            self.slide, boxes, mpp=self.model.mpp, threads=pace.threads, ahead=pace.ahead + pace.batch
        )
        behind = ThreadPoolExecutor(1, thread_name_prefix="find")
        waiting: deque[Future[Any]] = deque()
        mm2 = 0.0
        try:
            for band in bands:
                found: list[Future[Cells]] = []
                broken: dict[Box, str] = {}
                parts: list[tuple[Tensor, ...]] = []
                # A batch never holds tiles of two bands, so that it is the same batch after a resume.
                for batch in _batches(band.tiles, pace.batch):
                    pixels, holes = zip(*islice(images, len(batch)), strict=True)
                    for (window, tile), pieces in zip(batch, holes, strict=True):
                        broken |= _own(pieces, tile.core.meet(window.core))
                    taken = self.finder.reduce(self.model(np.stack(pixels)))
                    for index, (window, tile) in enumerate(batch):
                        parts.append(tuple(each[index] for each in taken))
                        mm2 += tile.core.width * tile.core.height * (self.model.mpp / 1000) ** 2
                        if len(parts) == len(window.tiles):
                            found.append(behind.submit(self.finder.find, window, parts))
                            waiting.append(found[-1])
                            parts = []
                    _wait(waiting, _BEHIND)
                    done += len(batch)
                    if report:
                        report(Progress(done, of_tiles, mm2, self.cells, time.perf_counter() - start))
                waiting.append(behind.submit(self._close, band, found, broken, close))
            _wait(waiting, 0)
        finally:
            images.close()
            behind.shutdown(cancel_futures=True)

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


def _batches(items: Iterator[tuple[Window, T]], size: int) -> Iterator[list[tuple[Window, T]]]:
    while batch := list(islice(items, size)):
        yield batch


def _wait(waiting: deque[Future[Any]], most: int) -> None:
    """Wait until at most so many are left; an error in one of them is raised here."""
    while len(waiting) > most:
        waiting.popleft().result()
