"""Reading ahead, and other work ahead of its use, in threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError, SlideError
from sparseshot.images.slide import Box, Grid, Slide

Item = TypeVar("Item")
Result = TypeVar("Result")


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

    def read(box: Box) -> tuple[Box, NDArray[np.uint8] | SlideError]:
        try:
            return box, slide.read(grid, box)
        except SlideError as error:
            return box, error

    return work_ahead(read, boxes, threads=threads, ahead=ahead)


def work_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Yield the result for each item in order, computed in threads up to ``ahead`` items before its use."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
