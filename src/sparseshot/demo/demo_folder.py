"""The plan of the demo, and its files.

::

    OUT/demo.json             the plan; marks the folder as a demo
    OUT/slide.tif             the slide
    OUT/truth.parquet         all of its cells
    OUT/marks.geojson         the marked cells, for QuPath
    OUT/LOSS/run/             the training
    OUT/LOSS/candidates/      prediction at the lowest threshold, from which every other follows
    OUT/LOSS/found/           prediction at the calibrated threshold: QuPath file, density map, counts
    OUT/LOSS/cells.parquet    the same cells as one GeoParquet file
    OUT/LOSS/output.txt       output of its process
    OUT/LOSS/speed.json       speed of prediction; written last
    OUT/numbers.json          all numbers of the page
    OUT/index.html            the page; written last
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells, nested_subsets
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.errors import OutputError
from sparseshot.files import make_folder, read_as, write_json
from sparseshot.training import TrainConfig

_PLAN = "demo.json"
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
        view_um: side of the square that is shown enlarged.
    """

    losses: tuple[str, ...] = LOSSES
    seed: int = 5
    width_px: int = 6000
    height_px: int = 4500
    tissue_fraction: float = 0.7
    marked: float = 0.2
    steps: int = 150
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


class LossFolder:
    """Files of one loss."""

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, path / "run"
        self.candidates, self.found = path / "candidates", path / "found"
        self.cells, self.output, self.speed = (
            path / name for name in ("cells.parquet", "output.txt", "speed.json")
        )


class DemoFolder:
    """Files of a demo, and its plan."""

    def __init__(self, path: Path, plan: DemoPlan) -> None:
        self.path, self.plan = path, plan
        self.slide, self.truth, self.marks = (
            path / name for name in ("slide.tif", "truth.parquet", "marks.geojson")
        )
        self.numbers, self.page = path / "numbers.json", path / "index.html"

    @classmethod
    def claim(cls, path: Path, plan: DemoPlan) -> Self:
        """Return a new or empty folder, or one with the same plan; other folders are an OutputError."""
        if (path / _PLAN).is_file():
            existing = cls.open(path)
            if existing.plan != plan:
                raise OutputError(
                    path, "holds a demo of another size or version; delete it, or choose another --out"
                )
            return existing
        if path.is_dir() and any(not each.name.startswith(".") for each in path.iterdir()):
            raise OutputError(path, "is not empty and not a demo; choose another --out")
        make_folder(path)
        write_json(path / _PLAN, plan)
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the folder of a demo, with the plan in it."""
        return cls(path, read_as(path / _PLAN, DemoPlan))

    def of_loss(self, loss: str) -> LossFolder:
        """Return the files of a loss."""
        return LossFolder(self.path / loss)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.numbers.is_file() and self.page.is_file()

    def remove_temporary_files(self) -> None:
        """Remove temporary files left by interrupted writes."""
        for path in self.path.rglob(".*.part*"):
            path.unlink(missing_ok=True)
