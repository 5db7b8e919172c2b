"""``sparseshot evaluate``: how good a model is, in numbers and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparseshot.cli.app import app
from sparseshot.cli.options import TRAINING, Dataset, Device, ExhaustiveClass, Json, Mpp, OptionalRoot
from sparseshot.cli.output import print_json, print_table
from sparseshot.errors import InputError

if TYPE_CHECKING:
    from sparseshot.training.evaluation import Evaluation


@app.command(rich_help_panel=TRAINING)
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its model.pt.")],
    dataset: Dataset = None,
    root: OptionalRoot = None,
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Part of the benchmark set.")
    ] = "test",
    slide: Annotated[
        list[Path] | None, typer.Option("--slide", "--images", help="Your own exhaustively marked images.")
    ] = None,
    marks: Annotated[list[Path] | None, typer.Option(help="All cells of each --slide.")] = None,
    exhaustive_class: ExhaustiveClass = "Exhaustive",
    mpp: Mpp = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for evaluation.json and .png; else the run.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Compare what a model finds with what there is.

    On the test images of the set it was trained on:

        sparseshot evaluate run

    On your own images, all of whose cells are marked:

        sparseshot evaluate run --images pictures --marks marks

    Dice (segmentation) or F1 within 3 µm (detection) at threshold 0.5, at the calibrated one, and at the best
    one, which only the truth can tell. Writes evaluation.json and evaluation.png beside the run.
    """
    from sparseshot.datasets import load_dataset
    from sparseshot.training.annotated import AnnotatedSlide, open_pairs, open_samples
    from sparseshot.training.pairs import find_pairs
    from sparseshot.training.runs import evaluate_run, run_data

    shown: list[AnnotatedSlide] = []
    if slide:
        pairs = find_pairs(slide, marks or [], None)
        images = open_pairs(pairs, mpp=mpp, exhaustive_class=exhaustive_class)
    else:
        data = run_data(run)
        name, place = dataset or data.dataset, root or data.root
        if name is None or place is None:
            raise InputError("say what to evaluate on: --dataset with --root, or --images with --marks")
        images = open_samples(load_dataset(name, place, split=split))
        if (data.dataset, data.root) == (name, place):
            shown = data.load()[0][:1]  # what it was trained on, with the marks it was given
    folder = out or (run if run.is_dir() else run.parent)
    result = evaluate_run(run, images, folder, shown=shown, device=device)
    if as_json:
        print_json(result)
    else:
        _show(result)


def _show(result: "Evaluation") -> None:
    from rich.table import Table

    name = "Dice" if result.task == "segment" else "F1"
    table = Table(title=f"{name} on {result.images} images with {result.cells:,} cells")
    for head in ("at", "threshold", name, "95 %", "mean of images", "precision", "recall"):
        table.add_column(head)
    for where, score in (("0.5", result.half), ("calibrated", result.calibrated), ("best", result.best)):
        if score is not None:
            numbers = (score.pooled, score.mean, score.precision, score.recall)
            pooled, mean, precision, recall = (f"{number:.3f}" for number in numbers)
            interval = f"{score.low:.3f}–{score.high:.3f}"
            table.add_row(where, f"{score.threshold:.2f}", pooled, interval, mean, precision, recall)
    print_table(table)
