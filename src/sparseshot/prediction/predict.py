"""Prediction of one slide into a folder."""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import shapely

from sparseshot.cells import Cells
from sparseshot.cells.formats.qupath_write import QuPathArchive
from sparseshot.errors import FormatError, SlideError, SparseshotWarning
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import work_ahead
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.models.finder import PLACE_DECIMALS, Finder, SlideFrame
from sparseshot.models.inference import PIECE_PX, TILE_PX, WindowOutputs, look_at, window_outputs
from sparseshot.models.windows import Band, plan
from sparseshot.prediction.compiled_network import EngineName
from sparseshot.prediction.export import FILES, QUPATH, PredictionSummary, export, read_summary
from sparseshot.prediction.manifest import (
    Done,
    Manifest,
    PredictRecipe,
    begin_anew,
    claimed,
    is_prediction,
    sweep,
)
from sparseshot.prediction.measuring import DEFAULT_MEASURING, Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.shards import ShardWriter
from sparseshot.work import Event, Report, ignore

_AROUND_REGION_UM = 100.0
"""What is this near to a region is looked at too, so that its cells are those of the whole slide."""

GPU_BATCH = 4
"""Tiles in a batch on a GPU; a CPU gains nothing from a second one."""

_BEHIND = 4
"""Windows that may wait for the finder: a bound on memory."""

_FINDERS = 2
"""Windows in which cells are found at a time, so that the last ones do not wait for each other."""


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


def predict_slide(
    slide: Slide,
    model: Model,
    folder: Path | str,
    *,
    throughput: Throughput = DEFAULT_THROUGHPUT,
    measuring: Measuring = DEFAULT_MEASURING,
    only_tissue: bool = True,
    region: shapely.Geometry | None = None,
    force: bool = False,
    wait_s: float = 0.0,
    report: Report = ignore,
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
        throughput: speed and memory.
        measuring: what is measured of each cell.
        only_tissue: predict tissue only; glass then costs nothing.
        region: predict only cells inside, in level-0 pixels; None for the whole slide.
        force: replace the result of another model, threshold or slide.
        wait_s: how long to wait for another process that works in the folder.
        report: receives an event after every batch.

    Raises:
        OutputError: the folder holds something else, or the disk is full.
    """
    folder = Path(folder)
    frame = model.frame(slide)
    model = model.on(frame.grid, recorded=_recorded(folder))
    finder = model.finder(frame, TissueMask.everywhere(slide))
    recipe = PredictRecipe.resolve(slide, model, finder, measuring, only_tissue=only_tissue, region=region)
    layout = finder.layout(throughput.tile_px)
    was_prediction = is_prediction(folder)
    with claimed(folder, recipe, layout, force=force, wait_s=wait_s) as (work, recorded):
        if any(any_readable(slide, frame.grid, place.on(frame.grid)) for place in recorded.broken):
            recorded = replace(recorded, done=Done(layout), finished=False)  # noqa: PLW2901
        if recorded.finished:
            return replace(read_summary(folder, recorded), seconds=work.state.seconds, skipped=True)
        searched = counted = tissue_mask(slide) if only_tissue else TissueMask.everywhere(slide)
        if region is not None:
            searched = counted.within(region, slide, around_um=_AROUND_REGION_UM)
            counted = counted.within(region, slide)
        manifest, bands = _planned(model, frame, searched, folder, recorded)
        if not manifest.shards:
            begin_anew(work, manifest, was_prediction=was_prediction)
        measuring = measuring.on(slide, frame.grid, searched)
        with QuPathArchive.writing(folder / QUPATH, slide.name, decimals=PLACE_DECIMALS) as archive:
            with_neighbours = measuring.level == "all"
            writer = ShardWriter(work, manifest, frame, bands, archive, with_neighbours)
            todo = bands[len(manifest.shards) :]
            if todo:
                predict_bands(
                    slide,
                    model,
                    model.finder(frame, searched),
                    todo,
                    writer.close,
                    frame=frame,
                    carried=writer.carried(),
                    measuring=measuring,
                    throughput=throughput,
                    region=region,
                    cells=writer.cells,
                    report=report,
                )
                model.release()  # before all places are in memory
            summary = export(writer, slide, counted, quality=model.quality, measured=measuring.settings())
            archive.finish(frame.no_cells())
        work.finish(*FILES, own=asdict(writer.manifest.done))
        sweep(folder, writer.manifest)
    return replace(summary, tiles=tiles_in(todo), seconds=work.state.seconds)


def predict_bands(
    slide: Slide,
    model: Model,
    finder: Finder,
    bands: Sequence[Band],
    close: Callable[[Band, Cells, Cells, dict[Box, str]], None],
    *,
    frame: SlideFrame,
    carried: Cells,
    measuring: Measuring = DEFAULT_MEASURING,
    throughput: Throughput = DEFAULT_THROUGHPUT,
    region: shapely.Geometry | None = None,
    cells: int = 0,
    report: Report = ignore,
) -> int:
    """Predict some bands of a slide; reading, network, finding and closing overlap.

    Args:
        slide: the slide.
        model: the model, with its engine.
        finder: turns its outputs into cells.
        bands: in order.
        close: called once for each band, in order, in another thread, with the decided cells, those carried
            over to the next band, and the places that could not be read.
        frame: of the slide.
        carried: cells that the previous band left undecided.
        measuring: what is measured of the cells.
        throughput: speed and memory.
        region: cells outside are left out; None for none.
        cells: number of cells that were decided before.
        report: receives an event after every window.

    Returns:
        The number of cells decided now and before.
    """
    start, of_tiles = time.perf_counter(), tiles_in(bands)

    def told(outputs: Iterable[WindowOutputs]) -> Iterator[WindowOutputs]:
        tiles, mm2 = 0, 0.0
        for output in outputs:
            yield output
            core, seconds = output.window.core, time.perf_counter() - start
            tiles, mm2 = tiles + len(output.parts), mm2 + core.width * core.height * (model.mpp / 1000) ** 2
            shown = f"{cells:,} cells, {mm2 / max(seconds, 1e-9):.2f} mm²/s"
            values = {"mm2": mm2, "cells": cells, "seconds": seconds}
            report(Event("predicting", tiles, of_tiles, values, shown))

    def find(output: WindowOutputs) -> tuple[Cells, dict[Box, str]]:
        found = finder.find(output.window, output.parts)
        return measuring.measured(found, output.window, output.pixels, frame.grid), output.broken

    def settle(of_band: tuple[Band, list[tuple[Cells, dict[Box, str]]]]) -> None:
        nonlocal carried, cells
        band, windows = of_band
        found = Cells.concatenate([carried, *(table for table, _ in windows)])
        decided, carried = finder.settle(found, next_y0=band.next_y0)
        if region is not None:
            decided = decided[shapely.intersects_xy(region, decided.xy)]
        cells += len(decided)
        close(band, decided, carried, {box: why for _, broken in windows for box, why in broken.items()})

    with ExitStack() as stack:
        outputs = window_outputs(
            model,
            slide,
            frame,
            finder,
            [band.windows for band in bands],
            batch=throughput.batch or (1 if model.device.type == "cpu" else GPU_BATCH),
            readers=throughput.threads,
            streams=model.streams,
            whitens_damage=True,
        )
        outputs = stack.enter_context(closing(outputs))
        found = stack.enter_context(closing(work_ahead(find, told(outputs), threads=_FINDERS, ahead=_BEHIND)))
        by_band = ((band, list(islice(found, len(band.windows)))) for band in bands)
        for _ in stack.enter_context(closing(work_ahead(settle, by_band, threads=1, ahead=1))):
            pass
    return cells


def any_readable(slide: Slide, grid: Grid, box: Box) -> bool:
    """Return whether any of the squares that meet a box can be read."""
    for piece in box.blocks(PIECE_PX, PIECE_PX):  # whole, because a part of a bad square may be readable
        with suppress(SlideError):
            slide.read(grid, piece)
            return True
    return False


def predict_area(slide: Slide, model: Model, area: tuple[float, float, float, float]) -> Cells:
    """Find the cells in x0, y0, x1, y1 in level-0 pixels at once, on tissue and glass alike."""
    frame = model.frame(slide)
    x0, y0, x1, y1 = (int(each) for each in frame.grid.from_level0(area))
    box = Box(x0, y0, x1 + 1, y1 + 1).meet(frame.grid.box)
    if not (box.width and box.height):
        return frame.no_cells()
    return look_at(model.network, model.task, slide, frame, threshold=model.threshold, box=box).cells


def tiles_in(bands: Sequence[Band]) -> int:
    """Return the number of tiles of some bands."""
    return sum(len(window.tiles) for band in bands for window in band.windows)


def _recorded(folder: Path) -> EngineName | None:
    """Return the engine of the result in a folder; None if there is none, or it cannot be read."""
    try:
        manifest = Manifest.load(folder)
    except FormatError:
        return None
    return None if manifest is None else manifest.engine


def _planned(
    model: Model, frame: SlideFrame, tissue: TissueMask, folder: Path, manifest: Manifest
) -> tuple[Manifest, tuple[Band, ...]]:
    """Lay out the bands; a result of other bands begins anew."""
    sizes = {"margin_px": model.margin_px, "alignment_px": model.alignment_px}
    bands = plan(frame.grid, tissue, manifest.done.layout, **sizes)
    content = repr([(band.next_y0, [window.core for window in band.windows]) for band in bands])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    shards = manifest.shards
    if manifest.done.plan not in ("", digest):
        shown = "its tissue is not what it was when the prediction began, so it begins anew"
        warnings.warn(f"{folder}: {shown}", SparseshotWarning, stacklevel=3)
        shards = ()
    done = replace(manifest.done, bands=len(bands), plan=digest, shards=shards)
    return replace(manifest, done=done), bands
