"""``sparseshot demo``: the whole job, from nothing to a page."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparseshot.cli.app import app, resumable
from sparseshot.cli.options import TRAINING, Json
from sparseshot.cli.output import print_json, print_table, progress_bars

if TYPE_CHECKING:
    from sparseshot.demo import Demo, Step


@app.command(rich_help_panel=TRAINING)
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for everything; must be new, or of a demo that was stopped.")
    ] = Path("sparseshot-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: shows that all works, not how well.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the whole job without any data: a made slide, a few marks, two losses, every cell, one page.

    Example: `sparseshot demo --out demo`

    Takes a few minutes on two cores. Stopped at any moment, the same command goes on where it was.
    """
    from sparseshot.demo import FULL, QUICK, run_demo

    with resumable(), _bars() as report:
        done = run_demo(out, QUICK if quick else FULL, report=report)
    if as_json:
        print_json(done.numbers)
        return
    _show(done)


@contextmanager
def _bars() -> "Iterator[Callable[[Step], None]]":
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn

    columns = ("{task.description}", BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with progress_bars(*columns) as bars:
        tasks: dict[str, TaskID] = {}

        def report(step: "Step") -> None:
            if step.title not in tasks:
                tasks[step.title] = bars.add_task(step.title, note="")
            bars.update(tasks[step.title], completed=step.done, total=step.total, note=step.note)

        yield report


def _show(done: "Demo") -> None:
    from rich.table import Table

    folder, numbers = done.folder, done.numbers
    if done.was_there:
        typer.echo("all of it was there already; delete the folder to see it made again")
    typer.echo(f"{numbers['marks']:,} of {numbers['cells']:,} cells were marked; F1 of finding them all:\n")
    table = Table("", "threshold 0.5", "calibrated", box=None, pad_edge=False)
    for each in numbers["losses"].values():
        table.add_row(each["title"], f"{each['half']['f1']:.3f}", f"{each['calibrated']['f1']:.3f}")
    print_table(table)
    best = folder.of_loss(folder.plan.losses[-1])
    places = {
        "page": folder.page,
        "slide": folder.slide,
        "marks": folder.marks,
        "QuPath": best.found / "qupath.zip",
        "GeoParquet": best.cells,
    }
    typer.echo()
    for name, path in places.items():
        typer.echo(f"{name:<11} {path}")
    slide, model = shlex.quote(str(folder.slide)), shlex.quote(str(best.run))
    typer.echo(
        "\nOpen the page in a browser; drop the marks and the QuPath file on the slide in QuPath. Then:\n"
    )
    typer.echo(f"  sparseshot predict {model} {slide} --out found     # the same on any slide")
    typer.echo("  sparseshot train --slide YOURS.svs --marks YOURS.geojson --task detect --out run")
