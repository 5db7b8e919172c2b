"""``sparseshot classify``: the kinds of cells that any program found."""

from pathlib import Path
from typing import Annotated

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import echo, print_json
from sparseshot.errors import InputError, counted
from sparseshot.terminal import shown_events


@app.command(rich_help_panel=options.TRAINING)
def classify(
    slide: Annotated[Path, Option(help="Slide or image.")],
    cells: Annotated[Path, Option(help="File of its cells, or the folder that `predict` wrote for it.")],
    marks: Annotated[list[Path], Option(help="Some of the cells, marked with class names; repeatable.")],
    model: Annotated[
        Path, Option(help="Folder of a training run, its model.pt, or starter (starter-outlines).")
    ] = Path("starter"),
    out: Annotated[
        Path | None,
        Option(
            help="File to write; its suffix decides the format.",
            show_default="the result in --cells, if it was predicted with --features",
        ),
    ] = None,
    exhaustive_class: options.ExhaustiveClass = "Exhaustive",
    keep_large: options.KeepLarge = False,
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    everywhere: options.Everywhere = False,
    device: options.Device = "auto",
) -> None:
    """Learn the kinds of cells that any program found, from some marks; write the same cells with kinds.

    Example: `sparseshot classify --slide a.svs --cells found.geojson --marks a.geojson --out kinds.geojson`

    Cells are points or outlines, in any format that `convert` reads. Places, outlines, ids, scores and
    measurements stay as they are; the class and the probability of each kind are new. Cells of no marked kind
    become Other.

    The cells of `predict --features` bring their features along, so that kinds take seconds. Without `--out`,
    the result itself gets the kinds.
    """
    options.check_paths(slide, cells, *marks, model)
    from sparseshot.cells import read_cells, write_cells
    from sparseshot.cells.formats.registry import format_of
    from sparseshot.models.kinds import MarkedCells
    from sparseshot.models.model_files import load_model
    from sparseshot.prediction import Model, found_with_features, read_prediction
    from sparseshot.prediction.manifest import Manifest
    from sparseshot.prediction.predict import rekind_slide
    from sparseshot.training.annotated import TrainingData
    from sparseshot.training.kind_marks import classify_cells

    there = Manifest.load(cells) if cells.is_dir() else None
    if out is not None:
        format_of(out)  # refused before anything is read
    elif there is None or not there.keeps_all:
        raise InputError("give --out, a file to write; only a result of `predict --features` can be changed")
    data = TrainingData(
        pairs=tuple((slide, file) for file in marks),
        mpp=mpp,
        force_mpp=force_mpp,
        everywhere=everywhere,
        exhaustive_class=exhaustive_class,
        keep_large=keep_large,
    )
    (item,), _ = data.load()
    with shown_events() as report:
        if out is None:
            found, features = found_with_features(cells)
            head = MarkedCells.of(found, item.marks).learn(features)
            using = Model.load(model, device=device)
            with resumable():
                counts = rekind_slide(item.slide, using, cells, head, report=report).counts
        else:
            found = read_prediction(cells) if cells.is_dir() else read_cells(cells, slide_mpp=item.slide.mpp)
            classified = classify_cells(
                item.slide, found, item.marks, load_model(model), device=device, report=report
            )
            write_cells(classified, out, size_px=item.slide.size)
            counts = classified.counts()
    print_json({"file": out or cells, "cells": sum(counts.values()), "classes": dict(counts)})
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    echo(f"{out or cells}: {counted(sum(counts.values()), 'cell')}: {listed}")
