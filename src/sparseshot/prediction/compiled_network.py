"""Networks compiled for prediction: by OpenVINO on a CPU, or by PyTorch.

OpenVINO runs both networks faster than PyTorch and ONNX Runtime do, with AVX2 and with AVX-512; see
docs/prediction.md. Compilation takes a second or two, so it pays for whole slides.
"""

import threading
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.errors import InputError
from sparseshot.images import Grid
from sparseshot.models.colour import network_input
from sparseshot.models.inference import evaluating, forward

EngineName = Literal["auto", "eager", "openvino", "compile"]
Forward = Callable[[NDArray[np.uint8]], Tensor]
"""Maps images ``(N, H, W, 3)`` to float32 outputs ``(N, channels, rows, cols)``."""

WORTHWHILE_PX = 2**25
"""A slide with fewer pixels, 8 mm² at 0.5 µm/px, is predicted sooner without compilation."""

STREAMS = 2
"""Images that OpenVINO computes at a time: while one waits for a thread, the cores work on the other."""

_CHECKED_PX = 192
"""Side of the image on which the compiled network is compared with the original."""

_TOLERANCE = {"f32": 1e-3, "bf16": 0.1}
"""Largest difference, as a share of the largest output; bfloat16 has 8 significant bits."""


def is_worthwhile(network: nn.Module, grid: Grid, *, bfloat16: bool) -> bool:
    """Return whether OpenVINO is installed, repays its compilation, and can compile the network."""
    if next(network.parameters()).device.type != "cpu" or find_spec("openvino") is None:
        return False
    if grid.width * grid.height < WORTHWHILE_PX:
        return False
    return not isinstance(_compiled(network, "openvino", bfloat16), InputError)


def compiled_network(network: nn.Module, engine: EngineName, *, bfloat16: bool) -> Forward:
    """Compile a network, or return it if it was compiled before.

    Args:
        network: in evaluation mode, on its device.
        engine: ``openvino``, or ``compile`` for :func:`torch.compile`.
        bfloat16: compute convolutions in bfloat16.

    Raises:
        InputError: OpenVINO is not installed, or cannot compile this network.
    """
    result = _compiled(network, engine, bfloat16)
    if isinstance(result, InputError):
        raise result
    return result


@lru_cache(maxsize=2)
def _compiled(network: nn.Module, engine: EngineName, bfloat16: bool) -> Forward | InputError:
    """Return the error instead of raising it, so that the next slide does not try again."""
    try:
        if engine == "openvino":
            return _by_openvino(network, bfloat16=bfloat16)
    except InputError as error:
        return error
    return _by_torch(network, bfloat16=bfloat16)


def _by_torch(network: nn.Module, *, bfloat16: bool) -> Forward:
    is_cuda = next(network.parameters()).device.type == "cuda"
    # All tiles have one shape, which CUDA graphs require; the output is copied before the next tile.
    mode = "reduce-overhead" if is_cuda else "default"
    module = cast(nn.Module, torch.compile(network, dynamic=False, mode=mode))
    return lambda images: forward(module, images, bfloat16=bfloat16)


class _FromPixels(nn.Module):
    """A network that takes pixels as they are read, so that their conversion is compiled too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map uint8 ``(N, H, W, 3)`` to float32 outputs ``(N, channels, rows, cols)``."""
        output: Tensor = self.network(network_input(images.permute(0, 3, 1, 2)))
        return output


def _by_openvino(network: nn.Module, *, bfloat16: bool) -> Forward:
    if next(network.parameters()).device.type != "cpu":
        raise InputError("OpenVINO runs on the CPU; use --device cpu, or --engine eager")
    if find_spec("openvino") is None:
        raise InputError("OpenVINO is not installed; pip install 'sparseshot[openvino]', or --engine eager")
    import openvino  # noqa: PLC0415

    precision = "bf16" if bfloat16 else "f32"
    side = 2 * int(getattr(network, "alignment_px", 16))
    try:
        with evaluating(network), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the network branches on the size; tiles take one branch only
            example = torch.zeros((1, side, side, 3), dtype=torch.uint8)
            model = openvino.convert_model(_FromPixels(network), example_input=example)
        model.reshape([-1, -1, -1, 3])
        compiled = openvino.compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                "NUM_STREAMS": min(STREAMS, torch.get_num_threads()),
            },
        )

        own = threading.local()  # a request serves one thread

        def run(images: NDArray[np.uint8]) -> Tensor:
            if not hasattr(own, "request"):
                own.request = compiled.create_infer_request()
            return torch.from_numpy(own.request.infer(images)[0])

        difference = _difference(run, network, bfloat16=bfloat16)
    except Exception as error:  # whatever a custom network may cause
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise InputError(f"OpenVINO cannot compile this network ({reason}); use --engine eager") from error
    if not difference <= _TOLERANCE[precision]:
        raise InputError(
            f"with OpenVINO, this network's output differs by {difference:.1%}; use --engine eager"
        )
    return run


def _difference(run: Forward, network: nn.Module, *, bfloat16: bool) -> float:
    """Return the largest difference from the original, on an image of another shape than the example."""
    across = np.linspace(0, 255, _CHECKED_PX)
    waves = np.sin(across[:, None, None] / 3) * np.cos(across[: _CHECKED_PX // 2, None] / (2, 5, 9))
    image = np.round(127.5 * (1 + waves)).astype(np.uint8)[None]
    expected, output = forward(network, image, bfloat16=bfloat16), run(image)
    if output.shape != expected.shape:
        return float("inf")
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
