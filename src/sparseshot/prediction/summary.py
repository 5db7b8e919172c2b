"""Counts of a predicted slide."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparseshot.errors import FormatError
from sparseshot.files import read_json, write_json
from sparseshot.metrics import ExpectedQuality
from sparseshot.prediction.manifest import Broken, Manifest

SUMMARY = "summary.json"
_SHARES = ("recall", "precision", "f1")


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
        quality: what is expected of the model, in words, and the expected number of cells; empty if unknown.
        measured: what was measured of each cell, and with which stains.
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
    quality: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
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
            "expected": dict(self.quality),
            "measured": dict(self.measured),
        }
        write_json(self.folder / SUMMARY, content)


def expected_on_slide(quality: ExpectedQuality | None, found: int) -> dict[str, Any]:
    """Return what is expected of a prediction, as the summary holds it; empty if it is unknown."""
    if quality is None:
        return {}
    known = {name: getattr(quality, name) for name in _SHARES}
    shares = {name: [round(each, 4) for each in share] for name, share in known.items() if share is not None}
    cells = quality.cells(found)
    counted = {} if cells is None else {"cells": list(cells)}
    return {"sentence": quality.sentence(), **counted, **shares, "marks": quality.marks}


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
            quality=dict(content.get("expected", {})),
            measured=dict(content.get("measured", {})),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(path, f"cannot be read ({error}); predict the slide again with --force") from None
