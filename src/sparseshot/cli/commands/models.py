"""``sparseshot starter`` and ``sparseshot export``: models to start from, and for other programs."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import echo, print_json
from sparseshot.terminal import shown_events


@app.command("export", rich_help_panel=options.TRAINING)
def export_model(
    run: options.Model,
    onnx: Annotated[Path, Option(help="File to write, in float32 and with free image sizes.")],
    threshold: options.Threshold = None,
) -> None:
    """Write a model as ONNX, checked with onnxruntime, for programs without PyTorch.

    Example: `sparseshot export run --onnx model.onnx`

    The metadata of the file state classes, µm per pixel, threshold, margin and how to scale pixels.
    """
    options.check_paths(run)
    from sparseshot.prediction import Model
    from sparseshot.prediction.onnx_file import write_onnx

    model = Model.load(run, threshold=threshold, device="cpu", precision="32")
    written = write_onnx(model, onnx)
    print_json(vars(written))
    echo(f"{written.path}: {written.bytes / 1e6:.1f} MB, opset {written.opset}")
    echo(f"onnxruntime and PyTorch differ by at most {written.difference:.1e} of the largest output")


@app.command(rich_help_panel=options.TRAINING)
def starter(
    out: Annotated[Path, Option(help="Folder for the starters; the same command resumes.")],
    task: Annotated[Literal["detect", "segment", "both"], Option(help="Starter to make.")] = "both",
    slides: Annotated[int, Option(min=1, help="Synthetic slides to learn from, in each stage.")] = 400,
    steps: Annotated[int, Option(min=1, help="Optimiser steps of each stage.")] = 5000,
    seed: options.Seed = 0,
    width: Annotated[int, Option(min=1, help="Channels of the first level of the network.")] = 16,
    data: Annotated[
        Path | None, Option(help="Folder of the open real sets to learn from too; without it, none.")
    ] = None,
    without: Annotated[
        list[str] | None, Option(help="Real set to leave out, so that the starter can be tested on it.")
    ] = None,
) -> None:
    """Train the starter models on synthetic tissue and on openly licensed real tissue.

    The package contains them already; this command makes them again, or larger ones:

        sparseshot starter --data data --out starters

    Run the same command again to resume an interrupted run.
    """
    options.check_paths(data)
    from sparseshot.training.starter import make_starter

    made = {}
    for each in ("detect", "segment") if task == "both" else (task,):
        with resumable(), shown_events() as report:
            checkpoint = make_starter(
                each,
                out,
                slides=slides,
                steps=steps,
                seed=seed,
                width=width,
                data=data,
                without=without or (),
                report=report,
            )
        made[each] = {"file": out / f"{each}.safetensors", "threshold": checkpoint.threshold}
        echo(f"{out / each}.safetensors: {checkpoint.step} steps, threshold {checkpoint.threshold:.3f}")
    print_json(made)
