"""Several predicted slides at a glance: their numbers as a table, and which of them are unlike the others."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseshot.cells.formats.geoparquet import measurement_names
from sparseshot.cells.formats.points_csv import with_apostrophe
from sparseshot.cells.measures.shape_measures import ORIENTATION
from sparseshot.errors import FormatError, utf8
from sparseshot.files import replacing
from sparseshot.prediction.manifest import Manifest
from sparseshot.prediction.slides import Outcome
from sparseshot.prediction.summary import PredictionSummary

COHORT_TABLE = "cohort.csv"

QUANTILES = (5.0, 25.0, 50.0, 75.0, 95.0)
_MEDIAN = QUANTILES.index(50.0)

FEWEST_SLIDES = 5
"""With fewer slides, none is called unusual."""
_UNUSUAL = 3.5
"""Distance from the median, in robust standard deviations, beyond which a value is unusual (Iglewicz &
Hoaglin 1993)."""
_LEAST_SPREAD = 0.02
"""Values that lie closer together than this share of their median count as spread by it."""


@dataclass(frozen=True)
class CohortSlide:
    """A slide of a cohort.

    Attributes:
        summary: its counts.
        quantiles: of each measurement, those of :data:`QUANTILES`.
    """

    summary: PredictionSummary
    quantiles: Mapping[str, NDArray[np.float64]]

    @property
    def values(self) -> dict[str, float]:
        """The numbers by which slides are compared, in the order of the table."""
        summary = self.summary
        numbers = {
            "tissue mm²": summary.tissue_mm2,
            "cells": float(summary.cells),
            "cells per mm²": summary.per_mm2(summary.cells),
        }
        for name, count in summary.counts.items() if len(summary.counts) > 1 else ():
            numbers[f"{name}: cells"] = float(count)
            numbers[f"{name}: per mm²"] = summary.per_mm2(count)
        return numbers | {f"median {name}": float(each[_MEDIAN]) for name, each in self.quantiles.items()}


@dataclass(frozen=True)
class Cohort:
    """Predicted slides.

    Attributes:
        slides: those that were predicted.
        failed: path and error of the others.
    """

    slides: Sequence[CohortSlide]
    failed: Sequence[tuple[Path, str]] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Cohort":
        """Read the measurements of predicted slides, one column of one slide at a time."""
        slides = [
            CohortSlide(each.summary, _quantiles(each.summary.folder)) for each in outcomes if each.summary
        ]
        return cls(slides, [(each.path, each.error) for each in outcomes if each.error])

    @property
    def columns(self) -> list[str]:
        """The numbers that any of the slides has."""
        return list(dict.fromkeys(name for slide in self.slides for name in slide.values))

    def unusual(self) -> dict[int, dict[str, tuple[float, float]]]:
        """Return the unusual values of each slide that has any: the value, and the median of all slides.

        A value is unusual if it is more than 3.5 robust standard deviations from the median. Numbers of cells
        and areas are left out, because they follow from the size of the tissue.
        """
        found: dict[int, dict[str, tuple[float, float]]] = {}
        if len(self.slides) < FEWEST_SLIDES:
            return found
        for name in self.columns:
            if name in {"tissue mm²", "cells"} or name.endswith(": cells"):
                continue
            values = np.array([slide.values.get(name, np.nan) for slide in self.slides])
            known = values[np.isfinite(values)]
            if len(known) < FEWEST_SLIDES:
                continue
            middle = float(np.median(known))
            spread = max(1.4826 * float(np.median(np.abs(known - middle))), _LEAST_SPREAD * abs(middle), 1e-9)
            for index in np.flatnonzero(np.abs(values - middle) > _UNUSUAL * spread).tolist():
                found.setdefault(index, {})[name] = (float(values[index]), middle)
        return dict(sorted(found.items()))

    def write_table(self, path: Path) -> None:
        """Write a line for each slide."""
        unusual = self.unusual()
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(
                [
                    "slide",
                    "folder",
                    "state",
                    "unreadable places",
                    *map(with_apostrophe, self.columns),
                    "unusual",
                ]
            )
            for index, slide in enumerate(self.slides):
                summary, values = slide.summary, slide.values
                numbers = [_short(values.get(name)) for name in self.columns]
                names = [with_apostrophe(each) for each in (summary.slide, summary.folder.name)]
                table.writerow(
                    [
                        *names,
                        "done",
                        len(summary.broken),
                        *numbers,
                        with_apostrophe("; ".join(unusual.get(index, ()))),
                    ]
                )
            for failed, error in self.failed:
                name, reason = (with_apostrophe(utf8(each)) for each in (failed.name, f"failed: {error}"))
                table.writerow([name, "", reason, "", *[""] * len(self.columns), ""])


def _short(value: float | None) -> str:
    """Return a number with at most six digits, as a spreadsheet reads it; empty for none."""
    return (
        "" if value is None or not np.isfinite(value) else f"{value:.0f}" if value >= 1e5 else f"{value:.6g}"
    )


def _quantiles(folder: Path) -> dict[str, NDArray[np.float64]]:
    return {name: np.percentile(values, QUANTILES) for name, values in _measured(folder) if len(values)}


def _measured(folder: Path) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Yield each measurement with the values of all cells that have one."""
    manifest = Manifest.load(folder)
    files = [] if manifest is None else [folder / shard.file.name for shard in manifest.shards]
    try:
        names = dict(pair for file in files for pair in measurement_names(file).items())
        for column, name in names.items():
            if name == ORIENTATION:  # angles have no median
                continue
            parts = [
                pq.read_table(file, columns=[column])[column].to_numpy()
                for file in files
                if column in pq.read_schema(file).names
            ]
            values = np.concatenate(parts)
            yield name, values[np.isfinite(values)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(folder, f"its cells cannot be read ({error}); predict it again") from error
