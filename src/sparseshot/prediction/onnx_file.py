"""A model as an ONNX file, which other programs run without PyTorch."""

import json
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from sparseshot.errors import InputError
from sparseshot.files import replacing
from sparseshot.models.inference import evaluating, network_input
from sparseshot.prediction.compiled_network import largest_difference
from sparseshot.prediction.model import Model

OPSET = 18
"""Version of the operators: onnxruntime runs it since 1.14, of 2023."""

NORMALISATION = "float32 of pixel * 2 / 255 - 1, channels red, green, blue"
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class OnnxFile:
    """What was written.

    Attributes:
        path: of the file.
        opset: version of its operators.
        bytes: its size.
        difference: largest difference between onnxruntime and PyTorch, as a share of the largest output.
        metadata: description of the model in the file.
    """

    path: Path
    opset: int
    bytes: int
    difference: float
    metadata: dict[str, str]


def write_onnx(model: Model, path: Path | str) -> OnnxFile:
    """Write a model as ONNX, in float32, and compare onnxruntime with PyTorch on another size of image.

    The input ``image`` is ``(batch, 3, height, width)``, height and width multiples of ``alignment_px``. The
    output ``output`` holds logits: of a segmenter for each pixel; of a detector for each grid cell, and its
    offsets. The metadata says how to use it.

    Raises:
        InputError: a package is missing, or the network cannot be exported.
    """
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(f'{missing[0]} is not installed; pip install "sparseshot[onnx]"')
    import onnx  # noqa: PLC0415

    path, network = Path(path), model.network.cpu()
    with replacing(path) as temporary:
        _write(network, temporary, alignment=model.alignment_px)
        graph = onnx.load(temporary)
        onnx.helper.set_model_props(graph, metadata := describe(model))
        graph.doc_string = "Written by sparseshot."
        onnx.checker.check_model(graph, full_check=True)
        onnx.save(graph, temporary)
        opset = next(each.version for each in graph.opset_import if not each.domain)
        difference = _difference(network, temporary, alignment=model.alignment_px)
        if not difference <= _TOLERANCE:
            reason = f"through onnxruntime, the network's output differs by {difference:.1%}"
            raise InputError(f"{path} was not written: {reason}")
    return OnnxFile(path, opset, path.stat().st_size, difference, metadata)


def describe(model: Model) -> dict[str, str]:
    """Return the metadata: everything needed to go from pixels to cells, each value as JSON."""
    task = model.task
    values: dict[str, object] = {
        "task": task.name,
        "classes": model.classes,
        "colors": model.colors,
        "um_per_px": model.mpp,
        "threshold": model.threshold,
        "margin_px": model.margin_px,
        "alignment_px": model.alignment_px,
        "stride_px": task.stride,
        "normalisation": NORMALISATION,
        "logit_channels": task.out_channels,
        "activation": "sigmoid" if task.out_channels == 1 else "softmax, class 0 is background",
        "fingerprint": model.fingerprint,
    }
    if task.name == "detect":
        values["offset_channels"] = [task.out_channels, task.out_channels + 1]
        values["place"] = "x = stride_px * (column + 2 * sigmoid(first offset) - 0.5), y likewise with row"
    return {f"sparseshot.{name}": json.dumps(value, ensure_ascii=False) for name, value in values.items()}


def _write(network: nn.Module, path: Path, *, alignment: int) -> None:
    """Trace the network; the sizes are free but for the alignment."""
    example = torch.zeros((2, 3, 8 * alignment, 16 * alignment))
    height, width = (alignment * torch.export.Dim(name, min=1, max=2**14) for name in ("rows", "columns"))
    try:
        with evaluating(network), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside PyTorch
            torch.onnx.export(
                network,
                (example,),
                path,
                dynamo=True,
                external_data=False,
                opset_version=OPSET,
                input_names=["image"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim("batch"), 2: height, 3: width},),
                verbose=False,
            )
    except Exception as error:  # whatever a custom network may cause
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"this network cannot be exported ({reason})") from error


def _difference(network: nn.Module, path: Path, *, alignment: int) -> float:
    import onnxruntime  # noqa: PLC0415

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = 1, 3, 11 * alignment, 6 * alignment
    image = network_input(torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0)))
    with evaluating(network):
        expected = network(image)
    (output,) = session.run(["output"], {"image": image.numpy()})
    return largest_difference(torch.from_numpy(output), expected)
