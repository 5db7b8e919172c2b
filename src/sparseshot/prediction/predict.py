"""Prediction of one slide into a folder."""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import shapely

from sparseshot.cells import Cells
from sparseshot.cells.formats.qupath_write import QuPathArchive
from sparseshot.errors import DataNotFoundError, FormatError, InputError, SlideError, SparseshotWarning
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.images.tiles import work_ahead
from sparseshot.images.tissue import TissueMask, tissue_mask
from sparseshot.models.finder import PLACE_DECIMALS, SCORE_DECIMALS, Finder, SlideFrame
from sparseshot.models.inference import PIECE_PX, TILE_PX, WindowOutputs, window_outputs
from sparseshot.models.kind_head import KindHead
from sparseshot.models.windows import Band
from sparseshot.prediction.export import FILES, QUPATH, PredictionSummary, export, read_summary
from sparseshot.prediction.manifest import (
    Done,
    Manifest,
    PredictRecipe,
    begin_anew,
    claimed,
    is_prediction,
    slide_identity,
    sweep,
)
from sparseshot.prediction.measuring import DEFAULT_MEASURING, Measuring
from sparseshot.prediction.model import Model
from sparseshot.prediction.shards import ShardWriter, with_features
from sparseshot.work import Event, Report, ignore

_AROUND_REGION_UM = 100.0
"""The network also sees what lies this near to a region, so that its cells are those of the whole slide."""

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
    features: bool = False,
    kinds: KindHead | None = None,
    force: bool = False,
    wait_s: float = 0.0,
    report: Report = ignore,
) -> PredictionSummary:
    """Find every cell of a slide and write them into ``folder``.

    Each band becomes a shard of GeoParquet. Interrupted at any moment, the same call resumes after the last
    finished shard and ends with the same bytes. Memory does not grow with the slide.

    Places of the slide that cannot be read count as glass and are listed in the summary. Once any of them can
    be read, the same call predicts the slide anew.

    With ``features``, all candidates from half the threshold up are kept with the features of each. Another
    threshold above that (of a detector) or other kinds then make a new result of them, without the network.

    Args:
        slide: the slide.
        model: the model.
        folder: of this slide alone; created if missing.
        throughput: speed and memory.
        measuring: what is measured of each cell.
        only_tissue: predict tissue only; glass then costs nothing.
        region: predict only cells inside, in level-0 pixels; None for the whole slide.
        features: keep candidates and their features; those of a result that is there are kept on.
        kinds: tell cells apart by this head instead of the model's; it needs features. None: by the one that
            the result was last made with, or by the model's.
        force: replace the result of another model, threshold or slide.
        wait_s: how long to wait for another process that works in the folder.
        report: receives an event after every batch.

    Raises:
        OutputError: the folder holds something else, or the disk is full.
    """
    folder = Path(folder)
    there = _recorded(folder, model)
    head = kinds.as_json() if kinds is not None else None if force else there.get("kinds")
    if head is not None:
        kinds = KindHead.from_json(head)
        model = replace(model, kinds=kinds, classes=kinds.names, colors=kinds.colors)
    frame = model.frame(slide)
    model = model.on(frame.grid, recorded=there.get("engine"))
    finder = model.finder(frame, TissueMask.everywhere(slide))
    lowest = _lowest_score(model, there.get("features"), features=features)
    keeps = lowest is not None or (model.kinds is not None and model.kinds.looks_around)
    of_model = {"task": model.task.name, "classes": list(model.classes), "mpp": model.mpp}
    recipe = PredictRecipe(
        slide=slide_identity(slide),
        model={"fingerprint": model.fingerprint, **of_model},
        threshold=model.threshold,
        precision=model.precision,
        engine=model.engine,
        only_tissue=only_tissue,
        settings=finder.settings(),
        measured=measuring.settings(),
        features=None if lowest is None else {"lowest_score": lowest},
        kinds=head,
        region=None if region is None else shapely.to_wkt(region, rounding_precision=2),
    )
    layout = finder.layout(throughput.tile_px)
    was_prediction = is_prediction(folder)
    with claimed(folder, recipe, layout, force=force, wait_s=wait_s) as (work, recorded):
        done = recorded.done
        if any(any_readable(slide, frame.grid, place.on(frame.grid)) for place in done.broken):
            done = Done(layout)
        elif recorded.finished:
            return replace(read_summary(folder, recorded), seconds=work.state.seconds, skipped=True)
        searched = counted = tissue_mask(slide) if only_tissue else TissueMask.everywhere(slide)
        if region is not None:
            searched = counted.within(region, slide, around_um=_AROUND_REGION_UM)
            counted = counted.within(region, slide)
        bands = model.bands(frame, searched, done.layout)
        done = _planned(done, bands, folder)
        if not done.shards:
            begin_anew(work, done, was_prediction=was_prediction)
        measuring = measuring.on(slide, frame.grid, searched)
        with QuPathArchive.writing(folder / QUPATH, slide.name, decimals=PLACE_DECIMALS) as archive:
            keeping = model.threshold if keeps else None
            writer = ShardWriter(work, done, frame, bands, archive, measuring, keeping)
            todo = bands[len(done.shards) :]
            if done.keeps_all:
                todo = ()
                writer.replay()
            if todo:
                finding = model if lowest is None else replace(model, threshold=lowest)
                predict_bands(
                    slide,
                    model,
                    finding.finder(frame, searched),
                    todo,
                    writer.close,
                    frame=frame,
                    carried=writer.carried(),
                    measuring=measuring,
                    throughput=throughput,
                    region=region,
                    keeps_features=keeps,
                    cells=writer.cells,
                    report=report,
                )
                model.release()  # before all places are in memory
            summary = export(writer, slide, counted, recipe=recipe, quality=model.quality)
            archive.finish(writer.shown.no_cells())
        done = writer.done if lowest is not None else replace(writer.done, kept=())
        work.finish(*FILES, own=asdict(done))
        sweep(folder, done)
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
    keeps_features: bool = False,
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
        keeps_features: cells carry their features to the end of the band, where they get their kinds.
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
        found, features = finder.find_with_features(output.window, output.parts)
        found = found if keeps_features else frame.with_kinds(found, features)
        found = measuring.measured(found, output.window, output.pixels, frame.grid)
        return with_features(found, features) if keeps_features else found, output.broken

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


def rekind_slide(
    slide: Slide, model: Model, folder: Path, kinds: KindHead, *, report: Report = ignore
) -> PredictionSummary:
    """Make a finished result with features anew, as it was asked for, but with other kinds.

    Args:
        slide: of the result.
        model: that found its cells.
        folder: of the result.
        kinds: tells the cells apart.
        report: receives progress events.
    """
    there = Manifest.load(folder)
    if there is None or not there.keeps_all:
        raise DataNotFoundError(
            folder, "holds no finished prediction with features; predict the slide with --features"
        )
    if not there.is_by(model.fingerprint):
        raise InputError(f"{folder}: another model found these cells; give it with --model")
    asked = there.identity
    region = asked.get("region")
    return predict_slide(
        slide,
        replace(model, threshold=asked["threshold"], precision=asked["precision"]),
        folder,
        measuring=Measuring.from_settings(asked["measured"]),
        only_tissue=asked["only_tissue"],
        region=None if region is None else shapely.from_wkt(region),
        kinds=kinds,
        report=report,
    )


def tiles_in(bands: Sequence[Band]) -> int:
    """Return the number of tiles of some bands."""
    return sum(len(window.tiles) for band in bands for window in band.windows)


def _recorded(folder: Path, model: Model) -> Mapping[str, Any]:
    """Return the recipe of the result in a folder; empty if there is none of this model that can be read."""
    try:
        there = Manifest.load(folder)
    except FormatError:
        return {}
    return there.identity if there is not None and there.is_by(model.fingerprint) else {}


def _lowest_score(model: Model, recorded: Mapping[str, float] | None, *, features: bool) -> float | None:
    """Return the score from which on candidates are kept with features; None if they are not."""
    if recorded is None and not features:
        return None
    if not model.task.kind_features:
        raise InputError(
            "this model has no features to tell kinds apart by, so none can be kept; give the starter, or a "
            "run that began with it"
        )
    if not model.task.scores_whole_cells:  # another threshold would give other outlines
        return model.threshold
    if recorded is not None and recorded["lowest_score"] <= model.threshold:
        return float(recorded["lowest_score"])
    return round(model.threshold / 2, SCORE_DECIMALS)


def _planned(done: Done, bands: Sequence[Band], folder: Path) -> Done:
    """Record the bands; a result of other bands begins anew."""
    content = repr([(band.next_y0, [window.core for window in band.windows]) for band in bands])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    shards = done.shards
    if done.plan not in ("", digest):
        shown = "its tissue is not what it was when the prediction began, so it begins anew"
        warnings.warn(f"{folder}: {shown}", SparseshotWarning, stacklevel=3)
        shards = ()
    return replace(done, bands=len(bands), plan=digest, shards=shards)
