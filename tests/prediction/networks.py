"""Small networks and checkpoints to predict with, and images to predict on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import SlideError
from sparseshot.images.slide import Box, Grid, Slide, read_region
from sparseshot.models.checkpoint import Checkpoint
from sparseshot.models.config import TrainSettings
from sparseshot.models.inference import network_input
from sparseshot.prediction.model import Model


class Darkness(nn.Module):
    """Takes for a nucleus what is darker than ``light``; looks 4 pixels far. Green over red is class 2."""

    margin_px, alignment_px = 4, 1

    def __init__(self, light: float = 0.1, *, classes: int = 1) -> None:
        super().__init__()
        self.light = nn.Parameter(torch.tensor(light))
        self.classes = classes

    def forward(self, image: Tensor) -> Tensor:
        """Map ``(N, 3, H, W)`` to logits."""
        smooth = F.avg_pool2d(image, 5, stride=1, padding=2)
        logit = 20 * (self.light - smooth.mean(dim=1, keepdim=True))
        if self.classes == 1:
            return logit
        difference = smooth[:, 1:2] - smooth[:, :1]
        return torch.cat([torch.zeros_like(logit), logit - 5 * difference, logit + 5 * difference], dim=1)


def random_detector(*, threshold: float = 0.6, seed: int = 0, **settings: Any) -> Checkpoint:
    """Make a detector that has learned nothing: it finds something everywhere."""
    torch.manual_seed(seed)
    config = TrainSettings(task="detect", **{"width": 4, "stride": 8, **settings})
    network = config.make_task().network()
    pixels = read_region(SyntheticTissue(seed=1, tissue_fraction=1), 4000, 4000, 256, 256, mpp=config.mpp)
    image = network_input(torch.from_numpy(pixels).permute(2, 0, 1)[None])
    with torch.no_grad():
        for _ in range(50):
            network(image)  # lets batch normalisation see what is usual
        network.eval()
        head = network.head
        assert isinstance(head, nn.Conv2d)
        assert head.bias is not None
        output = network(image)[:, : head.out_channels]
        scale = 2 / output.std(dim=(0, 2, 3))
        head.weight *= scale[:, None, None, None]
        head.bias.copy_(-output.mean(dim=(0, 2, 3)) * scale)
    return Checkpoint(config, network.state_dict(), step=1, threshold=threshold)


def darkness_model(*, light: float = 0.1, threshold: float = 0.5, classes: tuple[str, ...] = ()) -> Model:
    """Make a model that outlines what is dark."""
    network = Darkness(light, classes=max(1, len(classes)))
    config = TrainSettings(task="segment", classes=classes)
    checkpoint = Checkpoint(config, network.state_dict(), step=1, threshold=threshold)
    return Model.load(checkpoint, network=network, device="cpu", precision="32")


@dataclass(frozen=True, eq=False)
class ArraySlide(Slide):
    """An image in memory as a slide; some of its places may be broken."""

    pixels: NDArray[np.uint8]
    mpp: float = 0.5
    name: str = "array"
    broken: tuple[Box, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]

    def read(self, grid: Grid, box: Box) -> NDArray[np.uint8]:
        step = round(grid.downsample)
        whole = grid.downsample == step
        wanted = Box(*(round(grid.downsample * side) for side in box))
        for tile in self.broken:
            part = tile.meet(wanted)
            if part.width and part.height:
                raise SlideError(self.name, f"the tile at x {tile.x0}, y {tile.y0} cannot be decoded")
        inside = wanted.meet(Box(0, 0, *self.size))
        out = np.full((wanted.height, wanted.width, 3), 255, np.uint8)
        out[inside.within(wanted)] = self.pixels[inside.y0 : inside.y1, inside.x0 : inside.x1]
        if not whole:  # for pictures, where the nearest pixel will do
            rows, columns = (
                np.minimum((np.arange(count) * grid.downsample).astype(int), length - 1)
                for count, length in ((box.height, wanted.height), (box.width, wanted.width))
            )
            picked: NDArray[np.uint8] = out[rows[:, None], columns]
            return picked
        mean: NDArray[np.float64] = out.reshape(box.height, step, box.width, step, 3).mean(axis=(1, 3))
        return np.round(mean).astype(np.uint8)

    def thumbnail(self, max_px: int) -> NDArray[np.uint8]:
        step = -(-max(self.size) // max_px)
        return self.pixels[::step, ::step]


def save(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write a run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(folder / "model.pt")
    return folder
