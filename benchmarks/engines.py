"""The network alone on one tile, by engine: ``python -m benchmarks.engines``.

Under
``ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`` PyTorch and OpenVINO use no AVX-512; bfloat16 needs it.
"""

import argparse
import importlib.util
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.prediction import Repeated
from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.errors import InputError
from sparseshot.images import Box
from sparseshot.images.slide import Grid
from sparseshot.models.inference import TILE_PX, forward, network_input
from sparseshot.prediction import Model
from sparseshot.prediction.compiled_network import STREAMS, NetworkPrecision, compiled_network
from sparseshot.prediction.onnx_file import write_onnx

THREADS = ThreadPoolExecutor(STREAMS)
MODELS = {"detect": "starter", "segment": "starter-outlines"}


def ways(
    model: Model, folder: Path, *, precision: NetworkPrecision
) -> dict[str, Callable[[NDArray[np.uint8]], object]]:
    """Return each engine that is installed and has the precision, as a function of an image."""
    network = model.network
    found: dict[str, Callable[[NDArray[np.uint8]], object]] = {}
    found["eager"] = lambda image: forward(network, image, bfloat16=precision == "bf16")
    try:
        found["openvino"] = compiled_network(network, precision=precision)
    except InputError as error:
        print(f"openvino: {error}", file=sys.stderr)
    if precision == "32" and importlib.util.find_spec("onnxruntime"):
        found["onnxruntime"] = _onnxruntime(write_onnx(model, folder / f"{model.task.name}.onnx").path)
    return found


def as_predicted(run: Callable[[NDArray[np.uint8]], object], image: NDArray[np.uint8]) -> list[object]:
    """Run a network compiled by OpenVINO on as many tiles at a time as a prediction does."""
    return list(THREADS.map(run, [image] * STREAMS))


def _once(run: Callable[[NDArray[np.uint8]], object], image: NDArray[np.uint8]) -> object:
    return run(image)


def _onnxruntime(path: Path) -> Callable[[NDArray[np.uint8]], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(image: NDArray[np.uint8]) -> object:
        pixels = network_input(torch.from_numpy(image).permute(0, 3, 1, 2)).contiguous()
        return session.run(None, {"image": pixels.numpy()})

    return run


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    slide = Repeated.make()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for task, start in MODELS.items():
            model = Model.load(start, device="cpu", precision="32")
            side = TILE_PX + 2 * model.margin_px
            image = slide.read(Grid.over(slide, model.mpp), Box(0, 0, side, side))[None]
            calls: dict[str, Callable[[], object]] = {}
            for precision in get_args(NetworkPrecision):
                for engine, run in ways(model, Path(name), precision=precision).items():
                    call = as_predicted if engine == "openvino" else _once
                    calls[f"{precision} {engine}"] = partial(call, run, image)
            seconds = seconds_in_turns(calls, rounds=asked.rounds)
            for way, taken in seconds.items():
                tile = taken / STREAMS if way.endswith("openvino") else taken
                rows.append([task, *way.split(), 1000 * tile, seconds["32 eager"] / tile])
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    print_table(["task", "precision", "engine", "ms a tile", "times eager 32"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
