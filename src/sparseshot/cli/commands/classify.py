"""``sparseshot classify``: the kinds of cells that any program found."""

from pathlib import Path
from typing import Annotated

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json
from sparseshot.errors import counted
from sparseshot.terminal import shown_events


@app.command(rich_help_panel=options.TRAINING)
def classify(
    slide: Annotated[Path, Option(help="Slide or image.")],
    cells: Annotated[Path, Option(help="File of its cells, or the folder that `predict` wrote for it.")],
    marks: Annotated[list[Path], Option(help="Some of the cells, marked with class names; repeatable.")],
    out: Annotated[Path, Option(help="File to write; its suffix decides the format.")],
    model: Annotated[
        Path, Option(help="Folder of a training run, its model.pt, or starter (starter-outlines).")
    ] = Path("starter"),
    exhaustive_class: options.ExhaustiveClass = "Exhaustive",
    keep_large: options.KeepLarge = False,
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    everywhere: options.Everywhere = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Learn the kinds of cells that any program found, from some marks; write the same cells with kinds.

    Example: `sparseshot classify --slide a.svs --cells found.geojson --marks a.geojson --out kinds.geojson`

    Cells are points or outlines, in any format that `convert` reads. Places, outlines, ids, scores and
    measurements stay as they are; the class and the probability of each kind are new. Cells of no marked kind
    become Other.
    """
    options.check_paths(slide, cells, *marks, None if options.is_starter(model) else model)
    from sparseshot.cells import read_cells, write_cells
    from sparseshot.cells.formats.registry import format_of
    from sparseshot.cells.summary import summary
    from sparseshot.models.model_files import load_model
    from sparseshot.prediction import read_prediction
    from sparseshot.training.annotated import TrainingData
    from sparseshot.training.kind_marks import classify_cells

    format_of(out)  # refused before anything is read
    data = TrainingData(
        pairs=tuple((slide, file) for file in marks),
        mpp=mpp,
        force_mpp=force_mpp,
        everywhere=everywhere,
        exhaustive_class=exhaustive_class,
        keep_large=keep_large,
    )
    (item,), _ = data.load()
    found = read_prediction(cells) if cells.is_dir() else read_cells(cells, slide_mpp=item.slide.mpp)
    with shown_events() as report:
        classified = classify_cells(
            item.slide, found, item.marks, load_model(model), device=device, report=report
        )
    write_cells(classified, out, size_px=item.slide.size)
    if as_json:
        print_json({"file": out, **summary(classified)})
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in classified.counts().items())
        echo(f"{out}: {counted(len(classified), 'cell')}: {counts}")
