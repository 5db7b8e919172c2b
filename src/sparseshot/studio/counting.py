"""Regions to count in: cells, density and shares of the kinds, with intervals."""

import csv
import io
from dataclasses import dataclass
from typing import Any

import orjson
import shapely
from scipy.special import gammaincinv

from sparseshot.metrics import Interval, wilson_interval
from sparseshot.studio.marks import Item, polygon_of

_LEVEL = 0.95


@dataclass(frozen=True)
class RegionCount:
    """What was counted in a region.

    Attributes:
        id: of the region; empty for the whole slide.
        name: of the region.
        mm2: its area; of the whole slide, that of its tissue.
        counts: cells of each kind.
    """

    id: str
    name: str
    mm2: float
    counts: dict[str, int]

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

    def shares(self) -> dict[str, tuple[float, Interval]]:
        """Return the share of each kind, with its interval."""
        total = self.cells
        return {
            name: (count / total if total else 0.0, wilson_interval(max(0, count), total))
            for name, count in self.counts.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return what the page shows."""
        density, interval = self.per_mm2
        return {
            "id": self.id,
            "name": self.name,
            "mm2": self.mm2,
            "cells": self.cells,
            "per_mm2": [density, *interval] if self.mm2 else None,
            "kinds": {
                name: [self.counts[name], share, *ends] for name, (share, ends) in self.shares().items()
            },
        }

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
        for name, (share, (least, most)) in self.shares().items():
            columns |= {
                f"Num {name}": self.counts[name],
                f"{name} %": round(100 * share, 2),
                f"{name} %, low 95%": round(100 * least, 2),
                f"{name} %, high 95%": round(100 * most, 2),
            }
        return columns


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
