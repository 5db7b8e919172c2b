"""Prediction of one slide into a folder."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparseshot.errors import OutputError
from sparseshot.files import NO_ROOM, locked
from sparseshot.images.slide import Slide
from sparseshot.models.inference import TILE_PX
from sparseshot.prediction.engine import DEFAULT_PACE, Engine, Progress, Throughput
from sparseshot.prediction.measuring import DEFAULT_MEASURING, Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.slide_folder import SlideFolder, tiles_in
from sparseshot.prediction.summary import PredictionSummary, read_summary


def predict_slide(
    slide: Slide,
    model: Model,
    folder: Path | str,
    *,
    tile_px: int = TILE_PX,
    pace: Throughput = DEFAULT_PACE,
    measuring: Measuring = DEFAULT_MEASURING,
    only_tissue: bool = True,
    force: bool = False,
    wait_s: float = 0.0,
    report: Callable[[Progress], None] | None = None,
) -> PredictionSummary:
    """Find every cell of a slide and write them into ``folder``.

    Each band becomes a shard of GeoParquet. Interrupted at any moment, the same call resumes after the last
    finished shard and ends with the same bytes. Memory does not grow with the slide.

    Places of the slide that cannot be read count as glass and are listed in the summary. Once any of them can
    be read, the same call predicts the slide anew.

    Args:
        slide: the slide.
        model: the model.
        folder: of this slide alone; created if missing.
        tile_px: largest side of a tile.
        pace: speed and memory.
        measuring: what is measured of each cell.
        only_tissue: predict tissue only; glass then costs nothing.
        force: replace the result of another model, threshold or slide.
        wait_s: how long to wait for another process that works in the folder.
        report: called with the progress after every batch.

    Raises:
        OutputError: the folder holds something else, or the disk is full.
    """
    start = time.perf_counter()
    folder = Path(folder)
    with locked(folder, wait_s=wait_s), full_disk_is_output_error(folder), _old_objects_at_rest():
        work = SlideFolder.claim(
            slide,
            model,
            folder,
            tile_px=tile_px,
            measuring=measuring,
            only_tissue=only_tissue,
            force=force,
        )
        if work.manifest.finished:
            return replace(read_summary(folder, work.manifest), skipped=True)
        todo = work.todo
        if todo:
            engine = Engine(slide, work.model, work.finder, work.measuring, pace, work.carried(), work.cells)
            engine.run(todo, work.close, report)
            work.model.release()  # before all cells are in memory
        summary = work.export()
    return replace(summary, tiles=tiles_in(todo), seconds=time.perf_counter() - start)


@contextmanager
def _old_objects_at_rest() -> Iterator[None]:
    """Keep the garbage collector from visiting what exists already, such as all of PyTorch.

    The outlines of a slide are so many new objects that it would do so again and again, while all threads
    wait.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def full_disk_is_output_error(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk into one that tells the cure."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OutputError(
                folder, f"no room left ({error.strerror}); make room and run the same command again"
            ) from error
        raise
