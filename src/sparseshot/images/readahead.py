"""Reading ahead in threads."""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, SlideError
from sparseshot.images.slide import Box, Grid, Slide


def read_ahead(
    slide: Slide, grid: Grid, boxes: Iterable[Box], *, threads: int = 2, ahead: int = 8
) -> Generator[tuple[Box, NDArray[np.uint8] | SlideError], None, None]:
    """Read boxes of a slide in order, while the caller works on earlier ones.

    For a box that cannot be read the error is yielded, and reading continues. Leaving the loop early stops
    the threads, immediately under ``contextlib.closing``.

    Args:
        slide: the slide; its ``read`` runs in several threads at once.
        grid: the pixels to read.
        boxes: in pixels of the grid; consumed only as far ahead as is read.
        threads: number of threads.
        ahead: number of boxes read beyond the one the caller has, which bounds memory.
    """
    if threads < 1 or ahead < 1:
        raise InputError(f"{threads} threads reading {ahead} boxes ahead; give at least 1 of each")
    return _read(slide, grid, boxes, threads, ahead)


def _read(
    slide: Slide, grid: Grid, boxes: Iterable[Box], threads: int, ahead: int
) -> Generator[tuple[Box, NDArray[np.uint8] | SlideError], None, None]:
    waiting: deque[tuple[Box, Future[NDArray[np.uint8]]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        for box in boxes:
            waiting.append((box, pool.submit(slide.read, grid, box)))
            if len(waiting) > ahead:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(box: Box, reading: Future[NDArray[np.uint8]]) -> tuple[Box, NDArray[np.uint8] | SlideError]:
    try:
        return box, reading.result()
    except SlideError as error:
        return box, error
