"""Summary of a table."""

from typing import Any

import shapely

from sparseshot.cells.table import Cells


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
