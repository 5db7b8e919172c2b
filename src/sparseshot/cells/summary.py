"""Summary of a table, and outlines in it that are too large for a cell."""

import warnings
from typing import Any

import numpy as np
import shapely

from sparseshot.cells.table import Cells
from sparseshot.errors import SparseshotWarning


def summary(cells: Cells) -> dict[str, Any]:
    """Return counts, classes, extent and columns as plain values for JSON.

    >>> summary(Cells([[1, 2], [3, 4]], mpp=0.25))["extent"]
    'x 1–3, y 2–4 px, 0.5 × 0.5 µm'
    """
    extent = None
    if len(cells):
        (x0, y0), (x1, y1) = cells.xy.min(axis=0), cells.xy.max(axis=0)
        extent = f"x {x0:g}–{x1:g}, y {y0:g}–{y1:g} px"
        if cells.mpp is not None:
            extent += f", {(x1 - x0) * cells.mpp:g} × {(y1 - y0) * cells.mpp:g} µm"
    outlines = 0 if cells.outline is None else int((~shapely.is_missing(cells.outline)).sum())
    return {
        "cells": len(cells),
        "classes": cells.counts(),
        "extent": extent,
        "mpp": cells.mpp,
        "outlines": outlines,
        "nuclei": 0 if cells.nucleus is None else int((~shapely.is_missing(cells.nucleus)).sum()),
        "scores": cells.score is not None,
        "ids": cells.id is not None,
        "measurements": list(cells.measurements),
        "exhaustive regions": len(cells.regions),
        "memory": f"{cells.nbytes / 1e6:.1f} MB",
    }


LARGEST_CELL_UM2 = 2000.0
"""Area above which an outline is a region. Large tumour cells have some 500 µm²."""
MOST_NAMED = 5


def without_large_outlines(
    cells: Cells, where: str, *, mpp: float | None = None, largest_um2: float = LARGEST_CELL_UM2
) -> Cells:
    """Return the cells without outlines above an area; one warning names the outlines left out.

    Args:
        cells: marks as they were read.
        where: name of the file, for the warning.
        mpp: µm per level-0 pixel where the table carries none; without either, nothing is left out.
        largest_um2: largest area of a cell; ``inf`` keeps every outline.

    >>> cells = Cells([[5, 5], [500, 9]], outline=shapely.box([0, 0], [0, 0], [9, 999], [9, 999]), mpp=0.5)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     len(without_large_outlines(cells, "a.geojson"))
    1
    >>> print(caught[0].message)
    a.geojson: 1 outline above 2,000 µm² is taken for a region and left out: 'cell' of 249,500 µm² at (500, 9)
    """
    mpp = mpp or cells.mpp
    if mpp is None or cells.outline is None:
        return cells
    area_um2 = np.nan_to_num(shapely.area(cells.outline)) * mpp**2
    large = np.flatnonzero(area_um2 > largest_um2)
    if not len(large):
        return cells
    names = (*cells.classes, "unclassified")
    named = zip(cells.label[large], area_um2[large], *cells.xy[large].T, strict=True)
    listed = [f"{names[k]!r} of {area:,.0f} µm² at ({x:.0f}, {y:.0f})" for k, area, x, y in named]
    what = "1 outline" if len(large) == 1 else f"{len(large):,} outlines"
    verb = "is taken for a region" if len(large) == 1 else "are taken for regions"
    which = ", ".join([*listed[:MOST_NAMED], *(["…"] if len(large) > MOST_NAMED else [])])
    warnings.warn(
        f"{where}: {what} above {largest_um2:,.0f} µm² {verb} and left out: {which}",
        SparseshotWarning,
        stacklevel=2,
    )
    return cells[np.setdiff1d(np.arange(len(cells)), large)]
