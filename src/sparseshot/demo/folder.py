"""Where everything of a demo lies.

::

    OUT/demo.json             what is made: the folder is ours
    OUT/slide.tif             the slide
    OUT/truth.parquet         every cell of it
    OUT/marks.geojson         those that are marked, for QuPath
    OUT/LOSS/run/             the training; model.pt is its last word
    OUT/LOSS/candidates/      what the model finds at the lowest threshold, to judge any other
    OUT/LOSS/found/           what it finds at the calibrated threshold: QuPath file, density map, counts
    OUT/LOSS/cells.parquet    the same cells as one GeoParquet file
    OUT/LOSS/speed.json       how fast that was; written last
    OUT/numbers.json          all numbers of the page
    OUT/index.html            the page, written last: the demo is finished
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sparseshot.demo.plan import DemoPlan
from sparseshot.errors import FormatError, OutputError
from sparseshot.experiments.folders import make_folder, read_json
from sparseshot.files import write_json

_PLAN = "demo.json"


@dataclass(frozen=True)
class LossFolder:
    """What one loss leaves behind."""

    path: Path

    @property
    def run(self) -> Path:
        """The training."""
        return self.path / "run"

    @property
    def candidates(self) -> Path:
        """What is found at the lowest threshold."""
        return self.path / "candidates"

    @property
    def found(self) -> Path:
        """What is found at the calibrated threshold."""
        return self.path / "found"

    @property
    def cells(self) -> Path:
        """The same as one file."""
        return self.path / "cells.parquet"

    @property
    def speed(self) -> Path:
        """How fast it was."""
        return self.path / "speed.json"

    @property
    def output(self) -> Path:
        """Whatever its process said."""
        return self.path / "output.txt"


@dataclass(frozen=True)
class DemoFolder:
    """A folder that holds a demo, and its plan."""

    path: Path
    plan: DemoPlan

    @classmethod
    def claim(cls, path: Path, plan: DemoPlan) -> Self:
        """Take a new or empty folder, or go on with one of the same plan; anything else is an OutputError."""
        if (path / _PLAN).is_file():
            there = cls.open(path)
            if there.plan != plan:
                raise OutputError(
                    path, "holds a demo of another size or version; delete it, or choose another --out"
                )
            return there
        if path.is_dir() and any(not each.name.startswith(".") for each in path.iterdir()):
            raise OutputError(path, "holds something else than a demo; choose another --out")
        make_folder(path)
        write_json(path / _PLAN, plan.as_json())
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the plan of a folder that was claimed."""
        values = read_json(path / _PLAN)
        try:
            return cls(path, DemoPlan.from_json(values))
        except (KeyError, TypeError) as error:
            raise FormatError(
                path / _PLAN, f"is not the plan of a demo ({error}); choose another --out"
            ) from None

    @property
    def slide(self) -> Path:
        """The slide."""
        return self.path / "slide.tif"

    @property
    def truth(self) -> Path:
        """Every cell of it."""
        return self.path / "truth.parquet"

    @property
    def marks(self) -> Path:
        """Those that are marked."""
        return self.path / "marks.geojson"

    @property
    def numbers(self) -> Path:
        """The numbers of the page."""
        return self.path / "numbers.json"

    @property
    def page(self) -> Path:
        """The page."""
        return self.path / "index.html"

    def of_loss(self, loss: str) -> LossFolder:
        """Return the folder of a loss."""
        return LossFolder(self.path / loss)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be done."""
        return self.numbers.is_file() and self.page.is_file()

    def sweep(self) -> None:
        """Take away what a killed process was just writing."""
        for path in self.path.rglob(".*.part*"):
            path.unlink(missing_ok=True)
