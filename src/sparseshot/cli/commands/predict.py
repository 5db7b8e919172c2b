"""``sparseshot predict``: every cell of whole slides."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparseshot.cli.app import app, resumable
from sparseshot.cli.options import TRAINING, Device, Json, Mpp, Precision
from sparseshot.cli.output import print_json, print_table, progress_bars

if TYPE_CHECKING:
    from sparseshot.prediction import Model, Progress, Throughput
    from sparseshot.prediction.slides import Outcome


@app.command(rich_help_panel=TRAINING)
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished training run, or its model.pt.")],
    slides: Annotated[list[Path], typer.Argument(help="Slides or images, or folders of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; each slide gets one in it.")],
    mpp: Mpp = None,
    threshold: Annotated[
        float | None, typer.Option(help="Probability of a cell; else the one calibrated in training.")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Threads that read tiles ahead of the network.")] = 2,
    tile_px: Annotated[int, typer.Option(min=64, help="Side of a tile; does not change the result.")] = 1024,
    batch: Annotated[
        int, typer.Option(min=1, help="Tiles at once; does not change the result. More for a GPU.")
    ] = 1,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Look at glass too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell how many tiles, how long and how much disk.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what another model found.")] = False,
    skip_bad_tiles: Annotated[
        bool, typer.Option("--skip-bad-tiles", help="Places that cannot be read are no failure.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find every cell of slides, and write GeoParquet, a QuPath file, a density map and counts.

    Example: `sparseshot predict run slides/*.svs --out found`

    Stopped at any moment, the same command goes on where it was; what is finished is skipped. A slide that
    fails does not stop the others; the exit code is then 1.
    """
    from sparseshot.prediction import Model, Throughput
    from sparseshot.prediction.slides import find_slides, predict_slides

    paths = find_slides(slides)
    model = Model.load(run, threshold=threshold, device=device, precision=precision)
    pace = Throughput(batch=batch, threads=threads, ahead=2 * threads)
    if dry_run:
        _estimate(
            paths, model, out, mpp=mpp, tile_px=tile_px, pace=pace, tissue=not everywhere, as_json=as_json
        )
        return
    with resumable(), _bars() as begin:
        outcomes = predict_slides(
            paths,
            model,
            out,
            mpp=mpp,
            tile_px=tile_px,
            pace=pace,
            only_tissue=not everywhere,
            force=force,
            begin=begin,
        )
    if as_json:
        print_json([_as_json(outcome) for outcome in outcomes])
    else:
        _show(outcomes)
    if any(outcome.error or not (outcome.is_whole or skip_bad_tiles) for outcome in outcomes):
        raise typer.Exit(1)


def _estimate(
    paths: list[Path],
    model: "Model",
    out: Path,
    *,
    mpp: float | None,
    tile_px: int,
    pace: "Throughput",
    tissue: bool,
    as_json: bool,
) -> None:
    from rich.table import Table

    from sparseshot.images import open_slide
    from sparseshot.prediction.estimate import estimate_slide

    estimates = []
    for path in paths:
        with open_slide(path, mpp=mpp) as slide:
            estimates.append(
                estimate_slide(slide, model, out, tile_px=tile_px, pace=pace, only_tissue=tissue)
            )
    if as_json:
        print_json([vars(each) | {"seconds": each.seconds} for each in estimates])
        return
    table = Table("slide", "tiles", "glass", "mm²", "time", "cells", "disk", "free", box=None, pad_edge=False)
    for each in estimates:
        table.add_row(
            each.slide,
            f"{each.tiles:,}",
            f"{each.glass_tiles:,}",
            f"{each.tissue_mm2:.1f}",
            _duration(each.seconds),
            f"{each.cells:,}",
            _size(each.bytes),
            _size(each.free_bytes),
        )
    print_table(table)
    total = sum(each.seconds for each in estimates)
    typer.echo(f"in all about {_duration(total)}, {_size(sum(each.bytes for each in estimates))}")


def _show(outcomes: "list[Outcome]") -> None:
    from rich.table import Table

    table = Table("slide", "cells", "per mm²", "time", "", box=None, pad_edge=False)
    for outcome in outcomes:
        summary = outcome.summary
        if summary is None:
            table.add_row(outcome.path.name, "", "", "", "failed")
            continue
        state = "was there already" if summary.skipped else "done"
        if summary.broken:
            state += f", {len(summary.broken)} places unreadable"
        table.add_row(
            outcome.path.name,
            f"{summary.cells:,}",
            f"{summary.per_mm2(summary.cells):,.0f}",
            "" if summary.skipped else _duration(summary.seconds),
            f"{state}: {summary.folder}",
        )
    print_table(table)
    for outcome in outcomes:
        if outcome.error:
            typer.secho(f"error: {outcome.error}", fg=typer.colors.RED, err=True)
        for place in (outcome.summary.broken if outcome.summary else ())[:5]:
            where = f"x {place.x0:g}–{place.x1:g}, y {place.y0:g}–{place.y1:g}"
            typer.secho(
                f"{outcome.path}: not read: {where}: {place.reason}", fg=typer.colors.YELLOW, err=True
            )


def _as_json(outcome: "Outcome") -> dict[str, Any]:
    summary = outcome.summary
    if summary is None:
        return {"path": str(outcome.path), "state": "failed", "error": outcome.error}
    return {
        "path": str(outcome.path),
        "state": "skipped" if summary.skipped else "done",
        "folder": str(summary.folder),
        "cells": summary.cells,
        "counts": dict(summary.counts),
        "tissue_mm2": summary.tissue_mm2,
        "cells_per_mm2": summary.per_mm2(summary.cells),
        "threshold": summary.threshold,
        "tiles": summary.tiles,
        "seconds": summary.seconds,
        "unreadable": [vars(place) for place in summary.broken],
    }


@contextmanager
def _bars() -> "Iterator[Callable[[Path], Callable[[Progress], None] | None]]":
    """Show a bar for each slide on a terminal, and nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    note = TextColumn("{task.fields[note]}")
    with progress_bars(*columns, note, keep=True) as bars:

        def begin(path: Path) -> "Callable[[Progress], None]":
            task = bars.add_task(path.name, total=None, note="looking for tissue")

            def report(seen: "Progress") -> None:
                speed = f"{seen.tiles / seen.seconds:.1f} tiles/s, {seen.mm2 / seen.seconds:.2f} mm²/s"
                bars.update(
                    task, completed=seen.tiles, total=seen.of_tiles, note=f"{speed}, {seen.cells:,} cells"
                )

            return report

        yield begin


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
