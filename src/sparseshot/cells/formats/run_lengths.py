"""Run-length masks of COCO: lengths of runs of 0 and of 1, down the columns of the image."""

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from sparseshot.cells.trace import trace

MOST_PIXELS = 1 << 28


def outline_of_runs(segmentation: dict[str, Any]) -> shapely.Geometry | None:
    """Return the outline of a mask ``{"size": [height, width], "counts": …}``; None if it is empty.

    >>> outline_of_runs({"size": [2, 3], "counts": [2, 2, 2]}).wkt
    'POLYGON ((1 0, 2 0, 2 2, 1 2, 1 0))'
    >>> outline_of_runs({"size": [2, 3], "counts": "222"}).wkt
    'POLYGON ((1 0, 2 0, 2 2, 1 2, 1 0))'
    """
    height, width = (int(side) for side in segmentation["size"])
    if not 0 <= height * width <= MOST_PIXELS:
        raise ValueError(f"its mask is {width} × {height} pixels")
    counts = segmentation["counts"]
    runs = _unpacked(counts) if isinstance(counts, str) else np.array(counts, np.int64)
    if runs.ndim != 1 or (runs < 0).any() or runs.sum() != height * width:
        raise ValueError(f"its run lengths do not add up to {height} × {width} pixels")
    ends = np.cumsum(runs)
    starts, stops = (ends - runs)[1::2], ends[1::2]
    some = stops > starts
    if not some.any():
        return None
    first, last = starts[some].min() // height, (stops[some].max() - 1) // height
    mask = np.zeros((last - first + 1) * height, np.uint8)  # only the columns that the runs touch
    for start, stop in zip(starts - first * height, stops - first * height, strict=True):
        mask[start:stop] = 1
    outline = trace(mask.reshape(-1, height).T)[2][0]
    return shapely.transform(outline, lambda xy: xy + np.array([first, 0]))


def _unpacked(text: str) -> NDArray[np.int64]:
    """Decode compressed run lengths: five bits a character, differences from the third run on."""
    counts: list[int] = []
    value, shift = 0, 0
    for character in text.encode("ascii"):
        code = character - 48
        if not 0 <= code < 64 or shift > 60:
            raise ValueError("its run lengths are not coded as COCO does")
        value |= (code & 31) << shift
        shift += 5
        if not code & 32:
            if code & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value, shift = 0, 0
    return np.array(counts, np.int64)
