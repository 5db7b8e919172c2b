"""``sparseshot demo``: the whole job, from nothing to a page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import echo, print_json, print_table
from sparseshot.terminal import shown_events

if TYPE_CHECKING:
    from sparseshot.experiments.demo import Demo


@app.command(rich_help_panel=options.TRAINING)
def demo(
    out: Annotated[Path, Option(help="Folder for everything; new, or of an interrupted demo.")] = Path(
        "sparseshot-demo"
    ),
    quick: Annotated[
        bool, Option("--quick", help="Seconds instead of minutes: shows that it works, not how well.")
    ] = False,
) -> None:
    """Run the whole job without any data: a synthetic slide, a few marks, two losses, every cell, one page.

    Example: `sparseshot demo --out demo`

    Takes a few minutes on two cores. Run the same command again to resume an interrupted demo.
    """
    from sparseshot.experiments.demo import FULL, QUICK, run_demo

    with resumable(), shown_events() as report:
        done = run_demo(out, QUICK if quick else FULL, report=report)
    print_json(done.numbers)
    _show(done)


def _show(done: "Demo") -> None:
    folder, numbers = done.folder, done.numbers
    if done.was_there:
        echo("this demo was finished before; delete the folder to run it again")
    echo(f"{numbers['marks']:,} of {numbers['cells']:,} cells were marked; F1 over all cells:")
    echo()
    rows = [
        (each["title"], f"{each['half']['f1']:.3f}", f"{each['calibrated']['f1']:.3f}")
        for each in numbers["losses"].values()
    ]
    print_table(("", "threshold 0.5", "calibrated"), rows)
    echo()
    best = folder.run(folder.plan.losses[-1])
    files = {
        "page": folder.page,
        "slide": folder.slide,
        "marks": folder.marks,
        "QuPath": best / "found" / "qupath.zip",
        "GeoParquet": best / "cells.parquet",
    }
    print_table((), list(files.items()))
    slide, model, found = (
        shlex.quote(str(path)) for path in (folder.slide, best / "training", best / "found")
    )
    echo()
    echo("Open the page in a browser, and drag the marks and the QuPath file onto the slide in QuPath. Then:")
    echo()
    echo(f"  sparseshot predict {model} {slide} --out found     # or any other slide")
    echo("  sparseshot train --slide YOURS.svs --marks YOURS.geojson --task detect --out run")
    echo(f"  sparseshot studio {slide} {found}     # mark and train in the browser")
