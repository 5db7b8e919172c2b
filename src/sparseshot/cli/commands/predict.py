"""``sparseshot predict``: every cell of whole slides."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import complain, echo, print_json, print_table
from sparseshot.terminal import Begin, duration, progress_bars

if TYPE_CHECKING:
    from sparseshot.prediction import Progress
    from sparseshot.prediction.estimate import Estimate
    from sparseshot.prediction.slides import Outcome


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
    batch: Annotated[int, Option(min=1, help="Tiles in one batch; raise it for a GPU.")] = 1,
    everywhere: options.Everywhere = False,
    measure: Annotated[
        Literal["none", "basic", "all"],
        Option(help="Measure nothing, shape and stains (basic), or also the neighbours of each cell (all)."),
    ] = "all",
    stains: Annotated[Literal["he", "hdab"], Option(help="Haematoxylin with eosin, or with DAB.")] = "he",
    estimate_stains: Annotated[
        bool, Option("--estimate-stains", help="Adapt the colours of the stains to each slide.")
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
    cluster: options.Cluster = None,
    as_json: options.Json = False,
) -> None:
    """Find every cell of slides; write GeoParquet, a QuPath file, a density map and counts.

    Example: `sparseshot predict run slides/*.svs --out found`

    Run the same command again to resume; finished slides are skipped. A slide that fails does not stop the
    others; the exit code is then 1. With `--cluster`, the nodes of a Ray cluster share the work; they
    need the same folders.

    Without a run of your own, `starter` finds nuclei with what was learned from synthetic tissue.
    """
    is_starter = options.is_starter(run)
    options.check_paths(None if is_starter else run, *slides)
    from sparseshot.cells.measures.stains import STAINS
    from sparseshot.images import open_slide
    from sparseshot.prediction import Measuring, Model, Throughput
    from sparseshot.prediction.also import check_also, write_also
    from sparseshot.prediction.cohort_page import write_cohort
    from sparseshot.prediction.estimate import estimate_slide
    from sparseshot.prediction.slides import PredictionOptions, find_slides, predict_slides

    paths = find_slides(slides)
    check_also(also or (), paths)
    load: dict[str, Any] = {
        "threshold": threshold,
        "radius_um": radius_um,
        "precision": precision,
        "engine": engine,
    }
    model = Model.load(run, device="cpu" if cluster else device, **load)
    if is_starter:
        complain(
            "warning",
            "the starter has learned from synthetic tissue only, so it misses some cells and finds false "
            "ones; mark some cells and train to do better",
        )
    pace, only_tissue = Throughput(batch=batch, threads=threads), not everywhere
    if dry_run:
        estimates = []
        for path in paths:
            with open_slide(path, mpp=mpp, force_mpp=force_mpp) as slide:
                estimates.append(
                    estimate_slide(slide, model, out, tile_px=tile_px, pace=pace, only_tissue=only_tissue)
                )
        if as_json:
            print_json([vars(each) | {"seconds": each.seconds} for each in estimates])
        else:
            _show_estimates(estimates)
        return
    measuring = Measuring(measure, STAINS[stains], estimate_stains)
    how = PredictionOptions(mpp, tile_px, pace, measuring, only_tissue, force, force_mpp)
    if cluster is None:
        with resumable(), progress_bars(keep=True) as begin:
            outcomes = predict_slides(paths, model, out, options=how, begin=partial(_reporter, begin))
    else:
        from sparseshot.models.model_files import load_model
        from sparseshot.prediction.on_cluster import predict_on_cluster
        from sparseshot.work.ray_cluster import joined

        with resumable(), joined(cluster, device=device) as nodes, progress_bars(keep=True) as begin:
            outcomes = predict_on_cluster(
                paths, load_model(run), out, cluster=nodes, load=load, options=how, begin=begin
            )
    outcomes = write_also(outcomes, also or ())
    page = write_cohort(out, outcomes)
    if as_json:
        print_json([_entry(outcome) for outcome in outcomes])
    else:
        _show(outcomes)
        if page is not None:
            echo(f"all slides at a glance: {page}")
    if any(outcome.error or not (outcome.is_whole or skip_bad_tiles) for outcome in outcomes):
        raise typer.Exit(1)


def _reporter(begin: Begin, path: Path) -> "Callable[[Progress], None]":
    report = begin(path.name, note="finding tissue")

    def show(progress: "Progress") -> None:
        speed = f"{progress.mm2 / progress.seconds:.2f} mm²/s"
        report(progress.tiles, progress.of_tiles, f"{progress.cells:,} cells, {speed}")

    return show


def _show_estimates(estimates: "list[Estimate]") -> None:
    from rich.filesize import decimal

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
            state += f", {len(summary.broken)} places unreadable"
        seconds = "" if summary.skipped else duration(summary.seconds)
        density = f"{summary.per_mm2(summary.cells):,.0f}"
        rows.append((summary.cells, density, seconds, state, summary.folder))
    print_table(("cells", "per mm²", "time", "", "folder"), rows)
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
    }
