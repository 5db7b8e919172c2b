"""Networks compiled for prediction by OpenVINO, on a CPU.

OpenVINO runs both networks faster than PyTorch and ONNX Runtime do, with AVX2 and with AVX-512; see
docs/prediction.md. Compilation takes a second or two, so it pays for whole slides.
"""

import sys
import threading
import warnings
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.errors import InputError
from sparseshot.images import Grid
from sparseshot.models.inference import evaluating, forward, network_input

EngineName = Literal["auto", "eager", "openvino"]
NetworkPrecision = Literal["32", "bf16"]

WORTHWHILE_PX = 2**25
"""A slide with fewer pixels, 8 mm² at 0.5 µm/px, is predicted sooner without compilation."""

STREAMS = 2
"""Images that OpenVINO computes at a time: while one waits for a thread, the cores work on the other."""

_CHECKED_PX = 192
"""Side of the image on which the compiled network is compared with the original."""

_TOLERANCE = {"32": 1e-3, "bf16": 0.1}
"""Highest :func:`largest_difference` from the original; bfloat16 has 8 significant bits."""


def import_openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, because a prediction makes no network connections.

    At its import and at each conversion, it would write a client ID into the home folder and report to Google
    Analytics. The only documented setting against that is a file in the home folder, which is not ours to
    write. It takes the absence of the telemetry package as a refusal, and None in ``sys.modules`` is Python's
    way to declare a package absent.
    """
    loaded = sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    if loaded is not None:  # somebody has imported OpenVINO before
        loaded.main.TelemetrySender.send = lambda *_: None
    import openvino  # noqa: PLC0415  an extra

    module: ModuleType = openvino
    return module


def is_worthwhile(network: nn.Module, grid: Grid, *, precision: NetworkPrecision) -> bool:
    """Return whether OpenVINO is installed, repays its compilation, and can compile the network."""
    is_large = grid.width * grid.height >= WORTHWHILE_PX
    return is_large and not isinstance(_compiled(network, precision), InputError)


def compiled_network(network: nn.Module, *, precision: NetworkPrecision) -> "OpenVinoForward":
    """Compile a network, or return it if it was compiled before.

    Args:
        network: in evaluation mode, on its device.
        precision: of the convolutions.

    Raises:
        InputError: OpenVINO is not installed, or cannot compile this network.
    """
    result = _compiled(network, precision)
    if isinstance(result, InputError):
        raise result
    return result


class _FromPixels(nn.Module):
    """A network that takes pixels as they are read, so that their conversion is compiled too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map uint8 ``(N, H, W, 3)`` to float32 outputs ``(N, channels, rows, cols)``."""
        output: Tensor = self.network(network_input(images.permute(0, 3, 1, 2)))
        return output


class OpenVinoForward:
    """A network compiled by OpenVINO; a request serves one thread."""

    def __init__(self, compiled: Any) -> None:
        self._compiled, self._own = compiled, threading.local()

    def __call__(self, images: NDArray[np.uint8]) -> Tensor:
        """Compute the outputs."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        return torch.from_numpy(self._own.request.infer(images)[0])

    def release(self) -> None:
        """Free the buffers of all layers; the next call takes them again."""
        with suppress(RuntimeError):  # another thread is computing, and needs them
            self._compiled.release_memory()


@lru_cache(maxsize=2)
def _compiled(network: nn.Module, precision: NetworkPrecision) -> OpenVinoForward | InputError:
    """Return the error instead of raising it, so that the next slide does not try again."""
    if next(network.parameters()).device.type != "cpu":
        return InputError("OpenVINO runs on the CPU; use --device cpu, or --engine eager")
    if find_spec("openvino") is None:
        return InputError('OpenVINO is not installed; pip install "sparseshot[openvino]", or --engine eager')
    openvino = import_openvino()
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
                "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                "NUM_STREAMS": min(STREAMS, torch.get_num_threads()),
            },
        )
        run = OpenVinoForward(compiled)
        across = np.linspace(0, 255, _CHECKED_PX)  # of another shape than the example of the conversion
        waves = np.sin(across[:, None, None] / 3) * np.cos(across[: _CHECKED_PX // 2, None] / (2, 5, 9))
        image = np.round(127.5 * (1 + waves)).astype(np.uint8)[None]
        difference = largest_difference(run(image), forward(network, image, bfloat16=precision == "bf16"))
    except Exception as error:  # whatever a custom network may cause
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return InputError(f"OpenVINO cannot compile this network ({reason}); use --engine eager")
    if not difference <= _TOLERANCE[precision]:
        reason = f"with OpenVINO, this network's output differs by {difference:.1%}"
        return InputError(f"{reason}; use --engine eager")
    return run


def largest_difference(output: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a share of the largest output."""
    if output.shape != expected.shape:
        return float("inf")
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
