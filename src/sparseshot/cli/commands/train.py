"""``sparseshot train``: from images and a few marks to a model."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sparseshot.cli.app import app, resumable
from sparseshot.cli.options import (
    TRAINING,
    Dataset,
    Device,
    ExhaustiveClass,
    Json,
    Mpp,
    OptionalRoot,
    Precision,
    Seed,
)
from sparseshot.cli.output import print_json
from sparseshot.errors import InputError


@app.command(rich_help_panel=TRAINING)
def train(
    out: Annotated[
        Path, typer.Option(help="Folder of the run; the same command goes on with what is there.")
    ],
    dataset: Dataset = None,
    root: OptionalRoot = None,
    slide: Annotated[
        list[Path] | None, typer.Option("--slide", "--images", help="A slide or image, or a folder of them.")
    ] = None,
    marks: Annotated[
        list[Path] | None, typer.Option(help="The marks of each --slide, or a folder of files named alike.")
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="A CSV file with the columns slide and marks.")] = None,
    task: Annotated[Literal["segment", "detect"], typer.Option(help="Find outlines, or places.")] = "segment",
    loss: Annotated[
        str, typer.Option(help="A loss by its short name: adaptive, ece (the paper's), ce, focal, huber, …")
    ] = "adaptive",
    loss_option: Annotated[
        list[str] | None, typer.Option(help="An argument of the loss, as alpha=0.05.")
    ] = None,
    fraction: Annotated[
        float, typer.Option(help="Keep this share of the marks, to simulate sparse ones.")
    ] = 1.0,
    marking: Annotated[
        str, typer.Option(help="How that share is chosen: random, large, corner, images or classes.")
    ] = "random",
    classes: Annotated[
        str, typer.Option(help="Classes to learn, with commas; none: any mark is a cell.")
    ] = "",
    negative: Annotated[
        str, typer.Option(help="Classes whose marks are certain negatives, with commas.")
    ] = "",
    exhaustive_class: ExhaustiveClass = "Exhaustive",
    mpp: Mpp = None,
    profile: Annotated[
        Literal["quick", "paper"], typer.Option(help="Minutes on two cores, or full size.")
    ] = "quick",
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings of TrainConfig.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps; else the profile's.")] = None,
    seed: Seed = 0,
    rounds: Annotated[int, typer.Option(help="Rounds of weak supervision; 1: none.")] = 1,
    tau: Annotated[float, typer.Option(help="How sure a prediction must be to become a mark.")] = 0.75,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Json = False,
) -> None:
    """Train a model from sparsely marked images.

    On a benchmark set with 30 % of its marks:

        sparseshot train --dataset tnbc --root data --task segment --fraction 0.3 --out run

    On your own slides, marked in QuPath:

        sparseshot train --slide a.svs --marks a.geojson --task detect --out run

    Killed, it goes on where it was when the same command is given again.
    """
    from sparseshot.training.annotated import TrainingData
    from sparseshot.training.logs import numbers_of, read_log
    from sparseshot.training.machine import make_fabric
    from sparseshot.training.pairs import find_pairs
    from sparseshot.training.rounds import WeakSupervision
    from sparseshot.training.runs import make_config, train_run

    if (dataset is None) == (not slide and pairs is None):
        raise InputError("say what to train on: --dataset with --root, or --slide with --marks, or --pairs")
    if dataset is not None and root is None:
        raise InputError(f"say where {dataset} lies: --root DIR")
    settings: dict[str, Any] = {
        "task": task,
        "loss": loss,
        "loss_options": dict(map(_option, loss_option or [])),
        "classes": _names(classes),
        "negative_classes": _names(negative),
        "seed": seed,
        "precision": precision,
    }
    if steps is not None:
        settings["steps"] = steps
    found = () if dataset is not None else tuple(find_pairs(slide or [], marks or [], pairs))
    data = TrainingData(
        dataset=dataset,
        root=root,
        pairs=found,
        fraction=fraction,
        marking=marking,
        seed=seed,
        mpp=mpp,
        exhaustive_class=exhaustive_class,
    )
    fabric = make_fabric(precision, device=device)
    configuration = make_config(profile, config, settings)
    with resumable():
        checkpoint = train_run(configuration, data, out, weak=WeakSupervision(rounds, tau), fabric=fabric)
    estimates = numbers_of(read_log(out / "log.csv"), "marked_share")
    marked = estimates[-1] if estimates else None
    if as_json:
        model = {"model": out / "model.pt", "steps": checkpoint.step, "threshold": checkpoint.threshold}
        print_json(model | {"criterion": checkpoint.criterion, "marked_share": marked})
        return
    threshold = (
        "none: no marks were held out" if checkpoint.threshold is None else f"{checkpoint.threshold:.3f}"
    )
    typer.echo(f"{out / 'model.pt'}: {checkpoint.step} steps, calibrated threshold {threshold}")
    if marked is not None:
        typer.echo(f"about {marked:.0%} of the cells are marked, as far as the loss can tell")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _option(text: str) -> tuple[str, Any]:
    """Read ``name=value`` with the value as in TOML, or as a plain word."""
    import tomllib

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--loss-option {text!r} is not name=value, as alpha=0.05")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()
