"""Whole slides end to end, against the bare network on the same tiles in memory and against a script.

TIAToolbox 2.1 cannot be installed beside this package: it needs torchvision and a torch below 2.13. InstanSeg
downloads its weights. The alternative measured here is the script that one would write: OpenSlide tiles in a
torch data loader, the network, and peaks by a maximum filter. The script writes nothing and counts cells at
the seams of tiles twice.

``--against FOLDER`` also runs the sparseshot of another checkout, such as ``git worktree add ../old a447877``
makes, in a process of its own, in turns with this one.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import openslide
import torch
from numpy.typing import NDArray
from scipy.ndimage import label, maximum_filter

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.cells.suppression import settle
from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.images import TissueMask, open_slide, read_region
from sparseshot.images.slide import Box, Grid, Slide
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import TILE_PX, network_input
from sparseshot.models.windows import plan
from sparseshot.prediction import Model, predict_slide

SIZE_PX = 16_384
BLOCK_PX = 2048
MODELS = {"detect": "starter", "segment": "starter-outlines"}


@dataclass(frozen=True, eq=False)
class Repeated(Slide):
    """A large slide that repeats one block of synthetic tissue, so that it is generated quickly."""

    blocks: tuple[NDArray[np.uint8], ...]
    size: tuple[int, int] = (SIZE_PX, SIZE_PX)
    mpp: float = 0.25
    name: str = "repeated"

    @classmethod
    def make(cls) -> Self:
        """Generate the block at every resolution."""
        tissue = SyntheticTissue(seed=3, size_px=(BLOCK_PX, BLOCK_PX), tissue_fraction=1)
        halvings = range(BLOCK_PX.bit_length())
        return cls(
            tuple(
                read_region(tissue, 0, 0, BLOCK_PX >> k, BLOCK_PX >> k, mpp=tissue.mpp * 2**k)
                for k in halvings
            )
        )

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        """Read from the block of the grid's resolution."""
        block = self.blocks[round(np.log2(grid.downsample))]
        rows, columns = np.arange(box.y0, box.y1), np.arange(box.x0, box.x1)
        pixels: NDArray[np.uint8] = block[np.ix_(rows % len(block), columns % len(block))]
        return pixels

    def thumbnail(self, max_px: int) -> NDArray[np.uint8]:
        """Return a corner of the smallest block."""
        return self.blocks[-1][:max_px, :max_px]


def untrained_checkpoint(task: str, slide: Slide) -> Checkpoint:
    """Return a network of the default size whose threshold gives about 4,000 cells per mm²."""
    config = TrainSettings(task="detect" if task == "detect" else "segment")
    torch.manual_seed(0)
    network = config.make_task().network()
    image = read_region(slide, 0, 0, 512, 512, mpp=config.mpp)
    batch = network_input(torch.from_numpy(image).permute(2, 0, 1)[None])
    with torch.inference_mode():
        for _ in range(20):
            network(batch)  # sets the statistics of batch normalisation
        logits = network.eval()(batch)[0, 0]
        share = 4000 * (8e-3 * config.mpp) ** 2 if task == "detect" else 0.15
        threshold = float(torch.sigmoid(torch.quantile(logits.flatten()[:100_000], 1 - share)))
    return Checkpoint(config, network.state_dict(), step=1, threshold=threshold)


class Tiles(torch.utils.data.Dataset[NDArray[np.uint8]]):
    """Tiles of the second level of a slide, read by OpenSlide."""

    def __init__(self, path: Path, boxes: list[Box]) -> None:
        self._path, self._boxes = path, boxes
        self._slide: openslide.OpenSlide | None = None

    def __len__(self) -> int:
        return len(self._boxes)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """Read a tile at half the resolution, black outside the slide."""
        self._slide = self._slide or openslide.OpenSlide(str(self._path))  # once in each worker
        box = self._boxes[index]
        tile = self._slide.read_region((2 * box.x0, 2 * box.y0), 1, (box.width, box.height))
        return np.array(tile.convert("RGB"))


def by_script(path: Path, boxes: list[Box], model: Model) -> int:
    """Return the number of peaks, or of connected areas, that a script finds."""
    found = 0
    for image in torch.utils.data.DataLoader(Tiles(path, boxes), num_workers=1, batch_size=1):
        p = torch.sigmoid(torch.as_tensor(model(image.numpy()))[0, 0]).numpy()
        if model.task.name == "detect":
            found += int(((p == maximum_filter(p, 3)) & (p >= model.threshold)).sum())
        else:
            found += int(label(p >= model.threshold)[1])
    return found


OTHER = """
import sys, tempfile, time
from sparseshot.images import open_slide
from sparseshot.prediction import Model, predict_slide
path, folder, start, precision = sys.argv[1:]
folder = tempfile.mkdtemp(dir=folder)
model = Model.load(start, device="cpu", precision=precision)
with open_slide(path) as slide:
    for turn, _ in enumerate(sys.stdin):
        begin = time.perf_counter()
        predict_slide(slide, model, f"{folder}/{turn}")
        print(time.perf_counter() - begin, flush=True)
"""
"""Predicts the slide once for each line it reads."""


class OtherCheckout:
    """The prediction of another checkout, in a process that waits for its turn."""

    def __init__(self, source: Path, arguments: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(source.absolute() / "src")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __call__(self) -> None:
        """Predict once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("go", file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise SystemExit("the other checkout failed")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def bare_and_whole(
    path: Path, slide: Slide, model: Model, folder: Path, *, rounds: int, against: Path | None
) -> list[object]:
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes)
    model = model.on(frame.grid)
    tissue = TissueMask.everywhere(slide)
    layout = model.finder(frame, tissue).layout(TILE_PX)
    bands = plan(frame.grid, tissue, layout, margin_px=model.margin_px, alignment_px=model.alignment_px)
    boxes = [tile.padded for band in bands for window in band.windows for tile in window.tiles]
    images = [slide.read(frame.grid, box)[None] for box in boxes]
    found: list[int] = []

    def bare() -> None:
        with ThreadPoolExecutor(model.streams) as threads:
            for _ in threads.map(model, images):
                pass

    def whole() -> None:
        out = folder / f"{model.task.name} {len(found)} {model.precision}"
        found.append(predict_slide(slide, model, out).cells)

    ways: dict[str, Callable[[], object]] = {"bare": bare, "whole": whole}
    if against is None:
        ways["script"] = lambda: by_script(path, boxes, model)
        seconds = seconds_in_turns(ways, rounds=rounds)
    else:
        arguments = [str(path), str(folder), MODELS[model.task.name], model.precision]
        other = OtherCheckout(against, arguments)
        seconds = seconds_in_turns(ways | {"other": other}, rounds=rounds)
        other.close()
    mm2 = frame.grid.width * frame.grid.height * (frame.grid.mpp / 1000) ** 2
    third = seconds["script" if against is None else "other"]
    return [
        model.precision,
        model.engine,
        len(images),
        f"{found[-1]:,}",
        seconds["bare"],
        third,
        seconds["whole"],
        mm2 / seconds["whole"],
        f"{seconds['bare'] / seconds['whole']:.0%}",
        third / seconds["whole"],
    ]


def throughput(path: Path, slide: Slide, folder: Path, asked: argparse.Namespace) -> None:
    rows = []
    for task in asked.tasks:
        for precision in asked.precisions:
            model = Model.load(MODELS[task], device="cpu", precision=precision, engine=asked.engine)
            row = bare_and_whole(path, slide, model, folder, rounds=asked.rounds, against=asked.against)
            rows.append([task, *row])
    third = "script" if asked.against is None else "other checkout"
    times = ["bare network, s", f"{third}, s", "end to end, s"]
    header = ["task", "precision", "engine", "tiles", "cells", *times, "mm²/s", "share of the bare network"]
    print_table([*header, f"times the {third}"], rows)


def suppression() -> None:
    """Time the suppression in bands of growing width; the time per point should be constant."""
    random = np.random.default_rng(0)
    rows = []
    for count in (10_000, 100_000, 1_000_000):
        xy = random.uniform(0, (count / 5, 2048), (count, 2))
        score = random.random(count)
        settle(xy[:10], score[:10], radius=12, edge_y=2048)
        start = time.perf_counter()
        state = settle(xy, score, radius=12, edge_y=2048)
        rows.append((f"{count:,}", 1e6 * (time.perf_counter() - start) / count, f"{(state == 2).mean():.2%}"))
    print_table(["candidates", "µs per point", "undecided at the lower edge"], rows)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction")
    parser.add_argument("--tasks", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=["auto", "32", "bf16"], default=["auto"])
    parser.add_argument("--engine", choices=["auto", "eager", "openvino"], default="auto")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--size", type=int, default=SIZE_PX)
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pyramid(replace(Repeated.make(), size=(asked.size, asked.size)), folder / "slide.tif")
        print(f"A JPEG pyramid of {asked.size:,} × {asked.size:,} pixels at 0.25 µm, predicted at 0.5 µm.\n")
        with open_slide(folder / "slide.tif") as slide:
            throughput(folder / "slide.tif", slide, folder, asked)
    print("\nSuppression of one band:\n")
    suppression()


if __name__ == "__main__":
    main(sys.argv[1:])
