"""Whole slides end to end, against the bare network on the same tiles in memory and against a script.

TIAToolbox 2.1 cannot be installed beside this package: it needs torchvision and a torch below 2.13. InstanSeg
downloads its weights. The alternative measured here is the script that one would write: OpenSlide tiles in a
torch data loader, the network, and peaks by a maximum filter. The script writes nothing and counts cells at
the seams of tiles twice.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
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
from sparseshot.models.colour import network_input
from sparseshot.models.finder import SlideFrame
from sparseshot.models.inference import TILE_PX
from sparseshot.models.windows import plan
from sparseshot.prediction import Model, Throughput, predict_slide
from sparseshot.training.checkpoint import Checkpoint
from sparseshot.training.config import TrainConfig

SIZE_PX = 12_288
BLOCK_PX = 2048


@dataclass(frozen=True, eq=False)
class Repeated:
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

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def untrained_model(task: str, slide: Slide) -> Model:
    """Return a network of the default size whose threshold gives about 4,000 cells per mm²."""
    config = TrainConfig(task="detect" if task == "detect" else "segment")
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
    return Model.load(Checkpoint(config, network.state_dict(), step=1, threshold=threshold), device="cpu")


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


def bare_and_whole(path: Path, slide: Slide, model: Model, folder: Path, *, rounds: int) -> list[object]:
    frame = SlideFrame.over(slide, mpp=model.mpp, classes=model.classes)
    tissue = TissueMask.everywhere(slide)
    layout = model.finder(frame, tissue).layout(TILE_PX)
    bands = plan(frame.grid, tissue, layout, margin_px=model.margin_px, alignment_px=model.alignment_px)
    boxes = [tile.padded for band in bands for _, tile in band.tiles]
    images = [slide.read(frame.grid, box)[None] for box in boxes]
    found: list[int] = []

    def bare() -> None:
        for image in images:
            model(image)

    def whole() -> None:
        out = folder / f"{model.task.name} {len(found)}"
        found.append(predict_slide(slide, model, out, pace=Throughput(threads=2)).cells)

    ways = {"bare": bare, "script": lambda: by_script(path, boxes, model), "whole": whole}
    seconds = seconds_in_turns(ways, rounds=rounds)
    mm2 = frame.grid.width * frame.grid.height * (frame.grid.mpp / 1000) ** 2
    share = f"{seconds['bare'] / seconds['whole']:.0%}"
    speed = mm2 / seconds["whole"]
    return [model.precision, len(images), f"{found[-1]:,}", *seconds.values(), speed, share]


def throughput(path: Path, slide: Slide, folder: Path) -> None:
    rows = [
        [task, *bare_and_whole(path, slide, untrained_model(task, slide), folder, rounds=rounds)]
        for task, rounds in (("detect", 3), ("segment", 1))
    ]
    times = ["bare network, s", "script, s", "end to end, s"]
    header = ["task", "precision", "tiles", "cells", *times, "mm²/s", "speed relative to the bare network"]
    print_table(header, rows)


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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pyramid(Repeated.make(), folder / "slide.tif")
        print(f"A JPEG pyramid of {SIZE_PX:,} × {SIZE_PX:,} pixels at 0.25 µm, predicted at 0.5 µm.\n")
        with open_slide(folder / "slide.tif") as slide:
            throughput(folder / "slide.tif", slide, folder)
    print("\nSuppression of one band:\n")
    suppression()


if __name__ == "__main__":
    main()
