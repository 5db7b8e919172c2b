"""``sparseshot export``: a trained model for other programs."""

from pathlib import Path
from typing import Annotated

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json


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
