"""Regions to count in: cells, density and shares of the kinds, with intervals."""

import csv
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import shapely
from scipy.special import gammaincinv

from sparseshot.cells import Cells
from sparseshot.cells.stains import STAINS, stain_measurements
from sparseshot.images import Box, Grid, Slide
from sparseshot.metrics import Interval, wilson_interval
from sparseshot.prediction.measuring import POSITIVE
from sparseshot.studio.marks import Item, polygon_of

_LEVEL = 0.95
_MARGIN_UM, _MOST_PX = 20.0, 16_000_000


@dataclass(frozen=True)
class RegionCount:
    """What was counted in a region.

    Attributes:
        id: of the region; empty for the whole slide.
        name: of the region.
        mm2: its area; of the whole slide, that of its tissue.
        counts: cells of each kind.
        positive: those that are positive by DAB; None: not measured.
    """

    id: str
    name: str
    mm2: float
    counts: dict[str, int]
    positive: int | None = None

    @property
    def cells(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @property
    def per_mm2(self) -> tuple[float, Interval]:
        """Cells in a mm², with the interval of a Poisson count."""
        low, high = poisson_interval(self.cells)
        area = self.mm2 or float("nan")
        return self.cells / area, Interval(low / area, high / area)

    def share(self, count: int) -> tuple[float, Interval]:
        """Return the share of the cells that a number of them is, with its interval."""
        return count / self.cells if self.cells else 0.0, wilson_interval(max(0, count), self.cells)

    def as_json(self) -> dict[str, Any]:
        """Return what the page shows."""
        density, interval = self.per_mm2
        return {
            "id": self.id,
            "name": self.name,
            "mm2": self.mm2,
            "cells": self.cells,
            "per_mm2": [density, *interval] if self.mm2 else None,
            "kinds": {name: self._row(count) for name, count in self.counts.items()},
            "positive": None if self.positive is None else self._row(self.positive),
        }

    def _row(self, count: int) -> list[float]:
        share, interval = self.share(count)
        return [count, share, *interval]

    def columns(self) -> dict[str, float]:
        """Return the measurements of a file, with units in their names."""
        density, (low, high) = self.per_mm2
        columns: dict[str, float] = {
            "Area mm^2": round(self.mm2, 6),
            "Num cells": self.cells,
            "Cells per mm^2": round(density, 2),
            "Cells per mm^2, low 95%": round(low, 2),
            "Cells per mm^2, high 95%": round(high, 2),
        }
        numbers = self.counts if self.positive is None else {**self.counts, POSITIVE: self.positive}
        for name, count in numbers.items():
            columns[f"Num {name}"], *shares = self._row(count)
            for part, share in zip(("", ", low 95%", ", high 95%"), shares, strict=True):
                columns[f"{name} %{part}"] = round(100 * share, 2)
        return columns


def positive_cells(
    slide: Slide, cells: Cells, region: shapely.Polygon, *, mpp: float, least_od: float
) -> int | None:
    """Return how many cells of a region are positive by DAB, as ``predict --positive`` tells it.

    None for a region that is too large: its pixels are read at once.

    Args:
        slide: the slide.
        cells: in the region, with or without outlines.
        region: in level-0 pixels.
        mpp: resolution to measure at.
        least_od: mean optical density of DAB from which on a cell is positive.
    """
    grid = Grid.over(slide, mpp)
    bounds = region.buffer(_MARGIN_UM / slide.mpp).bounds
    x0, y0, x1, y1 = np.round(grid.from_level0(bounds)).astype(int).tolist()
    box = Box(x0, y0, x1, y1).meet(grid.box)
    if box.width * box.height > _MOST_PX:
        return None
    columns = stain_measurements(
        cells,
        slide.read(grid, box),
        STAINS["hdab"],
        mpp=grid.mpp,
        scale=1 / grid.downsample,
        origin=box[:2],
    )
    (density,) = [column for name, column in columns.items() if name.endswith("DAB OD mean")]
    return int((density >= np.float32(least_od)).sum())


def poisson_interval(count: int) -> Interval:
    """Return the exact interval of a Poisson mean.

    >>> [round(end, 2) for end in poisson_interval(10)]
    [4.8, 18.39]
    """
    tail = (1 - _LEVEL) / 2
    low = float(gammaincinv(count, tail)) if count else 0.0
    return Interval(low, float(gammaincinv(count + 1, 1 - tail)))


def regions_csv(regions: list[RegionCount]) -> bytes:
    """Return a table of regions as CSV."""
    columns = [{"Name": each.name, **each.columns()} for each in regions]
    names = dict.fromkeys(name for row in columns for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in columns:
        # A name that begins as a formula would be run by a spreadsheet.
        shown = row["Name"]
        writer.writerow(row | {"Name": f"'{shown}" if str(shown)[:1] in "=+-@" else shown})
    return text.getvalue().encode()


def regions_geojson(regions: list[RegionCount], items: list[Item]) -> bytes:
    """Return regions as annotations that QuPath reads."""
    rings = {item["id"]: item["count"] for item in items if "count" in item}
    features = [
        {
            "type": "Feature",
            "geometry": orjson.loads(shapely.to_geojson(polygon_of(rings[each.id]))),
            "properties": {
                "objectType": "annotation",
                "name": each.name,
                "classification": {"name": "Region*"},
                "measurements": each.columns(),
            },
        }
        for each in regions
        if each.id in rings
    ]
    return orjson.dumps({"type": "FeatureCollection", "features": features})
