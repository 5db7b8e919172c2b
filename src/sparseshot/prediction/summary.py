"""Counts of a predicted slide."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparseshot.errors import FormatError
from sparseshot.files import read_json, write_json
from sparseshot.prediction.manifest import Broken, Manifest

SUMMARY = "summary.json"


@dataclass(frozen=True)
class PredictionSummary:
    """What was found on a slide.

    Attributes:
        slide: its name.
        folder: where the result is.
        counts: cells of each class.
        tissue_mm2: area that was looked at.
        threshold: probability from which on something was a cell.
        broken: places that could not be read.
        tiles: looked at by this call.
        seconds: taken by this call.
        skipped: it was all there already.
    """

    slide: str
    folder: Path
    counts: Mapping[str, int]
    tissue_mm2: float
    threshold: float
    broken: tuple[Broken, ...] = ()
    tiles: int = 0
    seconds: float = 0.0
    skipped: bool = False

    @property
    def cells(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def per_mm2(self, count: int) -> float:
        """Return a count for each mm² of tissue; 0 where there is none."""
        return count / self.tissue_mm2 if self.tissue_mm2 else 0.0

    def write(self) -> None:
        """Write the summary into its folder."""
        classes = {
            name: {"cells": count, "per_mm2": round(self.per_mm2(count), 2)}
            for name, count in self.counts.items()
        }
        content = {
            "slide": self.slide,
            "cells": self.cells,
            "cells_per_mm2": round(self.per_mm2(self.cells), 2),
            "classes": classes,
            "tissue_mm2": round(self.tissue_mm2, 6),
            "threshold": self.threshold,
            "unreadable_places": len(self.broken),
        }
        write_json(self.folder / SUMMARY, content)


def read_summary(folder: Path, manifest: Manifest) -> PredictionSummary:
    """Read the summary of a finished prediction."""
    path = folder / SUMMARY
    content = read_json(path)
    try:
        return PredictionSummary(
            slide=content["slide"],
            folder=folder,
            counts={name: each["cells"] for name, each in content["classes"].items()},
            tissue_mm2=content["tissue_mm2"],
            threshold=content["threshold"],
            broken=manifest.broken,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(path, f"cannot be read ({error}); predict the slide again with --force") from None
