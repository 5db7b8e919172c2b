import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.images import slide_files

from sparseshot.errors import InputError, SlideError
from sparseshot.images import Box, Grid, open_slide
from sparseshot.images.slide import Slide
from sparseshot.images.tiles import read_ahead

BOXES = [Box(x, y, x + 40, y + 40) for y in range(0, 300, 40) for x in range(0, 400, 40)]


class SlowSlide(Slide):
    """A slide of which some places cannot be read; counts what it is asked for."""

    name = "slow"
    size = (1000, 1000)
    mpp = 0.5

    def __init__(self, *, broken: Collection[int] = (), error: type[Exception] = SlideError) -> None:
        self.broken = broken
        self.error = error
        self.asked: list[int] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        with self._lock:
            self.asked.append(box.x0)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.002 * (box.x0 % 3))  # so that they would overtake one another
        with self._lock:
            self.at_once -= 1
        if box.x0 in self.broken:
            raise (
                SlideError("slow", f"broken at {box.x0}") if self.error is SlideError else self.error("bug")
            )
        return np.full((box.height, box.width, 3), box.x0 % 251, np.uint8)


GRID = Grid.over(SlowSlide())


def columns(n: int) -> list[Box]:
    return [Box(i, 0, i + 1, 1) for i in range(n)]


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ahead", [1, 4, 200])
def test_everything_comes_in_order(tmp_path: Path, threads: int, ahead: int) -> None:
    path = slide_files.write_pyramid(tmp_path / "a.tif", slide_files.tissue(403, 301))
    with open_slide(path) as slide:
        grid = Grid.over(slide, 0.4)
        got = list(read_ahead(slide, grid, BOXES, threads=threads, ahead=ahead))
        assert [box for box, _ in got] == BOXES
        for box, pixels in got:
            assert not isinstance(pixels, SlideError)
            np.testing.assert_array_equal(pixels, slide.read(grid, box))
    assert not readers()


def test_a_broken_box_comes_as_its_error_and_the_rest_follows() -> None:
    got = list(read_ahead(SlowSlide(broken={3, 7}), GRID, columns(20), threads=4))
    assert [box.x0 for box, _ in got] == list(range(20))
    errors = {box.x0: str(pixels) for box, pixels in got if isinstance(pixels, SlideError)}
    assert errors == {3: "slow: broken at 3", 7: "slow: broken at 7"}


def test_a_corrupt_tile_of_a_real_file_comes_as_its_error(tmp_path: Path) -> None:
    path = slide_files.write_aperio(tmp_path / "a.svs", slide_files.tissue(403, 301))
    slide_files.corrupt_tile(path, column=2, row=1)
    boxes = [Box(x, y, x + 64, y + 64) for y in range(0, 256, 64) for x in range(0, 384, 64)]
    with open_slide(path) as slide:
        got = list(read_ahead(slide, Grid.over(slide), boxes, threads=3))
    assert [box for box, pixels in got if isinstance(pixels, SlideError)] == [Box(128, 64, 192, 128)]


def test_no_more_is_read_than_asked_for() -> None:
    slide = SlowSlide()
    drawn: list[int] = []

    def noted() -> Iterator[Box]:
        for box in columns(100):
            drawn.append(box.x0)
            yield box

    reading = read_ahead(slide, GRID, noted(), threads=3, ahead=5)
    assert not drawn
    next(reading)
    assert drawn == list(range(6))
    next(reading)
    assert drawn == list(range(7))
    reading.close()
    assert slide.most_at_once <= 3
    assert set(slide.asked) <= set(range(7))
    assert not readers()


def test_leaving_early_or_failing_ends_the_threads() -> None:
    for _ in read_ahead(SlowSlide(), GRID, columns(50)):
        break
    assert not readers()

    def use() -> None:
        for _ in read_ahead(SlowSlide(), GRID, columns(50)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert not readers()


def test_a_bug_is_not_taken_for_a_broken_tile() -> None:
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(SlowSlide(broken={2}, error=ZeroDivisionError), GRID, columns(5)))
    assert not readers()


def test_bounds_are_checked_at_once() -> None:
    with pytest.raises(InputError, match="0 threads reading 8 boxes ahead"):
        read_ahead(SlowSlide(), GRID, columns(1), threads=0)
    with pytest.raises(InputError, match="2 threads reading 0 boxes"):
        read_ahead(SlowSlide(), GRID, columns(1), ahead=0)
