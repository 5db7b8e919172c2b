"""What the demo makes and trains."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, nested_subsets
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.training import TrainConfig

LOSSES = ("ce", "adaptive")
"""The losses that are compared; the last one is recommended."""


@dataclass(frozen=True)
class DemoPlan:
    """Everything that determines a demo.

    Attributes:
        losses: their short names.
        seed: of the slide and of the choice of marks.
        width_px: of the slide, at 0.25 µm.
        height_px: of the slide.
        tissue_fraction: share of the slide that is tissue.
        marked: share of the cells that are marked.
        steps: of training.
        crop_px: side of a training crop.
        channels: width of the network.
        view_um: side of the square that is shown closely.
    """

    losses: tuple[str, ...] = LOSSES
    seed: int = 5
    width_px: int = 6000
    height_px: int = 4500
    tissue_fraction: float = 0.7
    marked: float = 0.2
    steps: int = 300
    crop_px: int = 128
    channels: int = 16
    view_um: float = 150.0

    def tissue(self) -> SyntheticTissue:
        """Return the slide."""
        return SyntheticTissue(
            seed=self.seed, size_px=(self.width_px, self.height_px), tissue_fraction=self.tissue_fraction
        )

    def is_marked(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which of the slide's cells are marked."""
        (chosen,) = nested_subsets(cells, [self.marked], seed=self.seed)[self.marked]
        return chosen

    def config(self, loss: str) -> TrainConfig:
        """Return the settings of a training; the full demo has the defaults of `sparseshot train`."""
        return TrainConfig(
            task="detect", loss=loss, steps=self.steps, crop_px=self.crop_px, width=self.channels
        )


FULL = DemoPlan()
QUICK = DemoPlan(
    width_px=1600, height_px=1200, tissue_fraction=1.0, steps=40, crop_px=64, channels=8, view_um=100.0
)
"""Takes seconds; shows that everything works, not how well."""
