"""Networks of other programs on the same tile: ``python -m benchmarks.other_networks``.

Each network alone: no reading, no outlines. The others have random weights, which take as long as trained
ones; ours are the starters. Every tile has 1,024² pixels and counts whole, for all networks alike.

- Cellpose 3 rescales objects to a diameter, 17 pixels (``nuclei``) or 30 (``cyto``). A nucleus of 8 µm then
  has 0.47 or 0.27 µm/px. Cellpose itself cuts overlapping blocks of 224², which costs more than one tile.
- StarDist with the configuration of its model 2D_versatile_he works at 0.5 µm/px.

A missing package is reported and its rows are left out. The engine ``own`` is what the program itself uses.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.engines import MODELS, as_predicted
from benchmarks.prediction import Repeated
from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.errors import InputError
from sparseshot.images import Box
from sparseshot.images.slide import Grid
from sparseshot.models.device import uses_bfloat16
from sparseshot.models.inference import TILE_PX, forward
from sparseshot.prediction import Model
from sparseshot.prediction.compiled_network import STREAMS, compiled_network, import_openvino

NUCLEUS_UM = 8
"""Diameter of a nucleus that Cellpose would rescale."""


class Candidate(NamedTuple):
    """A network as it is run, on one tile or on several."""

    network: str
    mpp: float
    engine: str
    precision: str
    run: Callable[[], object]
    tiles: int = 1


def ours(image: NDArray[np.uint8], precisions: Sequence[str]) -> Iterator[Candidate]:
    """Yield our networks, by PyTorch and by OpenVINO."""
    for task, start in MODELS.items():
        model = Model.load(start, device="cpu", precision="32")
        name = f"sparseshot, {task}"
        for precision in precisions:
            half = precision == "bf16"
            eager = partial(forward, model.network, image, bfloat16=half)
            yield Candidate(name, model.mpp, "own, eager", precision, eager)
            try:
                openvino = compiled_network(model.network, precision="bf16" if half else "32")
                run = partial(as_predicted, openvino, image)
                yield Candidate(name, model.mpp, "own, openvino", precision, run, STREAMS)
            except InputError as error:
                print(f"{name}: {error}", file=sys.stderr)


def cellpose(image: NDArray[np.uint8], precisions: Sequence[str]) -> Iterator[Candidate]:
    """Yield the network of Cellpose 3, which runs on a CPU with oneDNN's layout."""
    from cellpose.resnet_torch import CPnet
    from torch.utils.mkldnn import to_mkldnn

    pixels = torch.from_numpy(image[..., :2]).permute(0, 3, 1, 2).float().div(255).contiguous()
    torch.manual_seed(0)
    network = CPnet([2, 32, 64, 128, 256], 3, 3).eval()
    own = CPnet([2, 32, 64, 128, 256], 3, 3, mkldnn=True).eval()
    own.load_state_dict(network.state_dict())
    own = to_mkldnn(own)  # type: ignore[no-untyped-call]

    def eager() -> object:
        with torch.inference_mode():
            return own(pixels)[0]

    # The mean over the image, written so that OpenVINO can convert it.
    network.make_style.avg_pool = lambda x, **_: x.mean((2, 3), keepdim=True)
    with torch.inference_mode():
        compiled = dict(_by_openvino(network, pixels, precisions))
    for name, diameter_px in (("nuclei", 17), ("cyto", 30)):
        mpp = NUCLEUS_UM / diameter_px
        yield Candidate(f"Cellpose 3, {name}", mpp, "own", "32", eager)
        for precision, run in compiled.items():
            yield Candidate(f"Cellpose 3, {name}", mpp, "openvino", precision, run)


def stardist(image: NDArray[np.uint8], precisions: Sequence[str]) -> Iterator[Candidate]:
    """Yield StarDist's network, which runs by TensorFlow with Keras 2."""
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(torch.get_num_threads())
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    from stardist.models import Config2D, StarDist2D

    config = Config2D(axes="YXC", n_channel_in=3, n_rays=32, grid=(2, 2), unet_n_depth=3)
    with _printing_to_stderr():
        network = StarDist2D(config, name=None, basedir=None).keras_model
    pixels = (image / 255).astype(np.float32)
    yield Candidate("StarDist, H&E", 0.5, "own", "32", partial(network.predict, pixels, verbose=0))
    for precision, run in _by_openvino(network, pixels, precisions):
        yield Candidate("StarDist, H&E", 0.5, "openvino", precision, run)


OTHERS = {
    cellpose: "pip install --no-deps 'cellpose<4'",
    stardist: "pip install stardist csbdeep tensorflow-cpu tf_keras",
}
"""Other networks, and how to install them."""


def _by_openvino(
    network: object, pixels: torch.Tensor | NDArray[np.float32], precisions: Sequence[str]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the same network compiled by OpenVINO, for each precision."""
    try:
        openvino = import_openvino()
    except ModuleNotFoundError:
        return
    model = openvino.convert_model(network, example_input=pixels)
    model.reshape(list(pixels.shape))
    for precision in precisions:
        how = {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        yield precision, partial(openvino.compile_model(model, "CPU", how), np.asarray(pixels))


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Keep what a library prints out of the table."""
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = out


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.other_networks")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, help="of every network; default: PyTorch's")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if asked.threads:
        torch.set_num_threads(asked.threads)
    precisions = ["32", "bf16"] if uses_bfloat16("auto", torch.device("cpu")) else ["32"]
    slide = Repeated.make()
    image = slide.read(Grid.over(slide, 0.5), Box(0, 0, TILE_PX, TILE_PX))[None]
    found = list(ours(image, precisions))
    for other, install in OTHERS.items():
        try:
            found += other(image, precisions)
        except ModuleNotFoundError as error:
            print(f"{other.__name__} is left out: no module {error.name}; {install}", file=sys.stderr)
    # Cellpose's two resolutions are one network on the same pixels, so it is timed once.
    runs = {str(id(each.run)): each.run for each in found}
    seconds = seconds_in_turns(runs, rounds=asked.rounds)
    rows = []
    for each in found:
        taken = seconds[str(id(each.run))] / each.tiles
        mm2 = (TILE_PX * each.mpp / 1000) ** 2
        rows.append([each.network, each.mpp, each.engine, each.precision, 1000 * taken, mm2 / taken])
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    print_table(["network", "µm/px", "engine", "precision", f"ms per tile of {TILE_PX:,}²", "mm²/s"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
