"""``sparseshot predict``: every cell of whole slides."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import complain, echo, print_json, print_table
from sparseshot.errors import counted
from sparseshot.terminal import duration, shown_events
from sparseshot.work.folder import Event, Report

if TYPE_CHECKING:
    from sparseshot.prediction.slides import Outcome, PredictRequest
    from sparseshot.work import Update
    from sparseshot.work.ray_cluster import RayCluster


@app.command(rich_help_panel=options.TRAINING)
def predict(
    run: options.Model,
    slides: options.SlideFiles,
    out: Annotated[Path, Option(help="Folder for the results, with a subfolder for each slide.")],
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    threshold: options.Threshold = None,
    radius_um: options.RadiusUm = None,
    device: options.Device = "auto",
    precision: options.PredictionPrecision = "auto",
    engine: options.Engine = "auto",
    threads: Annotated[int, Option(min=1, help="Threads that read tiles ahead of the network.")] = 2,
    tile_px: Annotated[
        int, Option(min=64, max=4096, help="Side of a tile. Does not change the cells that are found.")
    ] = 1536,
    batch: Annotated[
        int | None, Option(min=1, help="Tiles in one batch.", show_default="1, on a GPU 4")
    ] = None,
    everywhere: options.Everywhere = False,
    region: Annotated[
        str | None,
        Option(
            metavar="X,Y,W,H|FILE[#NAME]",
            help="Only find cells in a box, or in the annotations of a file from QuPath, or in one of them.",
        ),
    ] = None,
    measure: Annotated[
        Literal["none", "basic", "all"],
        Option(help="Measure nothing, shape and stains (basic), or also the neighbours of each cell (all)."),
    ] = "all",
    stains: Annotated[Literal["he", "hdab"], Option(help="Haematoxylin with eosin, or with DAB.")] = "he",
    estimate_stains: Annotated[
        bool, Option("--estimate-stains", help="Adapt the colours of the stains to each slide.")
    ] = False,
    positive: Annotated[
        bool, Option("--positive", help="Tell positive from negative cells by their DAB; with --stains hdab.")
    ] = False,
    positive_od: Annotated[
        float, Option(min=0, max=5, help="Mean optical density of DAB from which on a cell is positive.")
    ] = 0.2,
    features: Annotated[
        bool,
        Option(
            "--features",
            help="Keep the features of all candidates, so that kinds and --threshold can change in seconds.",
        ),
    ] = False,
    also: Annotated[
        list[str] | None,
        Option(help="Write all cells as csv, h5ad (AnnData), zarr (SpatialData), dcm (DICOM) …; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only estimate tiles, time, cells and disk space.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace the results of another model.")] = False,
    skip_bad_tiles: Annotated[
        bool, Option("--skip-bad-tiles", help="Exit with 0 even if parts of a slide are unreadable.")
    ] = False,
    network: options.Network = None,
    cluster: options.Cluster = None,
) -> None:
    """Find every cell of slides; write GeoParquet, a QuPath file, a density map and counts.

    Example: `sparseshot predict run slides/*.svs --out found`

    Run the same command again to resume; finished slides are skipped. A slide that fails does not stop the
    others; the exit code is then 1. With `--cluster`, the nodes of a Ray cluster share the work; they
    need the same folders.

    Without a run of your own, `starter` finds nuclei with what it has learned from other tissue.
    """
    options.check_paths(run, *slides)
    from sparseshot.prediction.cohort import write_cohort
    from sparseshot.prediction.slides import PredictRequest, find_slides, predict_slides

    paths = find_slides(slides)
    if also:
        from sparseshot.prediction.extra_formats import check_extra_formats, write_extra_formats

        check_extra_formats(also, paths)
    options.find_own_modules(network)
    request = PredictRequest(
        model=str(run),
        network=network,
        threshold=threshold,
        radius_um=radius_um,
        device="cpu" if cluster else device,
        precision=precision,
        engine=engine,
        mpp=mpp,
        force_mpp=force_mpp,
        everywhere=everywhere,
        region=region,
        features=features,
        measure=measure,
        stains=stains,
        estimate_stains=estimate_stains,
        positive_od=positive_od if positive else None,
        tile_px=tile_px,
        batch=batch,
        threads=threads,
        force=force,
    )
    _ = request.load(), request.measuring  # now, because an error in them concerns all slides
    if options.is_starter(run):
        complain(
            "warning",
            "the starter has learned from other tissue, so it misses some cells and finds false ones; mark "
            "some cells and train to do better",
        )
    if dry_run:
        _estimate(paths, request, out)
        return
    # The outlines of a slide are so many new objects that the collector would visit those that exist already,
    # such as all of PyTorch, again and again, while all threads wait.
    gc.freeze()
    if cluster is None:
        with resumable(), shown_events(keep=True) as report:
            outcomes = predict_slides(paths, request, out, show=_bars(report))
    else:
        from sparseshot.work.ray_cluster import joined

        with resumable(), joined(cluster, device=device) as nodes, shown_events(keep=True) as report:
            show = _one_bar(report, len(paths), nodes)
            outcomes = predict_slides(paths, request, out, cluster=nodes, show=show)
    if also:
        outcomes = write_extra_formats(outcomes, also)
    page = write_cohort(out, outcomes)
    print_json([_entry(outcome) for outcome in outcomes])
    _show(outcomes)
    if page is not None:
        echo(f"all slides at a glance: {page}")
    if any(outcome.error or not (outcome.is_whole or skip_bad_tiles) for outcome in outcomes):
        raise typer.Exit(1)


def _bars(report: Report) -> "Callable[[Update], None]":
    """Return what shows the news of jobs as a bar for each."""
    begun = set()

    def show(update: "Update") -> None:
        name = update.job.name
        if update.event is not None or name not in begun:
            event = update.event or Event("", 0, 1, message="finding tissue")
            report(replace(event, stage=Path(name).name))
        begun.add(name)

    return show


def _one_bar(report: Report, slides: int, cluster: "RayCluster") -> "Callable[[Update], None]":
    """Return what shows the news of jobs as one bar: slides so far, nodes, and tiles per second."""
    start = time.monotonic()
    tiles: dict[str, int] = {}
    ended: list[Update] = []

    def show(update: "Update") -> None:
        if update.event is not None:
            tiles[update.job.name] = update.event.done
        if update.is_end:
            ended.append(update)
        failed = sum(each.error is not None for each in ended)
        speed = sum(tiles.values()) / max(1.0, time.monotonic() - start)
        note = f"{len(cluster.nodes())} nodes, {speed:.1f} tiles/s"
        note = f"{note}, {failed} failed" if failed else note
        report(Event("slides", len(ended), slides, message=note))

    return show


def _estimate(paths: list[Path], request: "PredictRequest", out: Path) -> None:
    from rich.filesize import decimal

    from sparseshot.prediction.estimate import estimate_slide

    estimates = []
    for path in paths:
        with request.open(path) as slide:
            only_tissue, throughput = not request.everywhere, request.throughput
            estimates.append(
                estimate_slide(slide, request.load(), out, throughput=throughput, only_tissue=only_tissue)
            )
    print_json([vars(each) | {"seconds": each.seconds} for each in estimates])
    rows = [
        (
            each.slide,
            each.tiles,
            each.glass_tiles,
            f"{each.tissue_mm2:.1f}",
            duration(each.seconds),
            each.cells,
            decimal(each.bytes),
            decimal(each.free_bytes),
        )
        for each in estimates
    ]
    print_table(("slide", "tiles", "glass", "mm²", "time", "cells", "disk", "free"), rows)
    seconds, total = sum(each.seconds for each in estimates), sum(each.bytes for each in estimates)
    echo(f"in all about {duration(seconds)}, {decimal(total)}")


def _show(outcomes: "list[Outcome]") -> None:
    rows: list[tuple[object, ...]] = []
    for outcome in outcomes:
        summary = outcome.summary
        if summary is None:
            rows.append(("", "", "", "failed", outcome.path))
            continue
        state = "finished before" if summary.skipped else "done"
        if summary.broken:
            state += f", {counted(len(summary.broken), 'place')} unreadable"
        seconds = "" if summary.skipped else duration(summary.seconds)
        density = f"{summary.per_mm2(summary.cells):,.0f}"
        rows.append((summary.cells, density, seconds, state, summary.folder))
    print_table(("cells", "per mm²", "time", "", "folder"), rows)
    for outcome in outcomes:
        if outcome.summary is not None and outcome.summary.positive_text:
            echo(f"{outcome.summary.slide}: positive {outcome.summary.positive_text}")
    sentences = {each.summary.quality.get("sentence") for each in outcomes if each.summary} - {None}
    for sentence in sentences:
        echo(f"on slides like the marked ones {sentence}")
    for outcome in outcomes:
        if outcome.error:
            complain("error", outcome.error)
        for place in (outcome.summary.broken if outcome.summary else ())[:5]:
            where = f"x {place.x0:g}–{place.x1:g}, y {place.y0:g}–{place.y1:g}"
            complain("warning", f"{outcome.path}: unreadable: {where}: {place.reason}")


def _entry(outcome: "Outcome") -> dict[str, object]:
    summary = outcome.summary
    if summary is None:
        return {"path": outcome.path, "state": "failed", "error": outcome.error}
    names = ("folder", "cells", "tissue_mm2", "threshold", "tiles", "seconds")
    return {
        "path": outcome.path,
        "state": "skipped" if summary.skipped else "done",
        **{name: getattr(summary, name) for name in names},
        "counts": dict(summary.counts),
        "cells_per_mm2": summary.per_mm2(summary.cells),
        "unreadable": summary.broken,
        "expected": summary.quality,
        **({"positive": summary.positive} if summary.positive else {}),
    }
