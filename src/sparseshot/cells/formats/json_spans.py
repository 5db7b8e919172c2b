"""Spans of bytes: copied into the rows of an array, and told apart."""

from typing import Any

import numpy as np
from numba import njit

RECENT = 32
"""So many spans are looked at for one like the next; a file has few forms, or as many as features."""


@njit(cache=True, nogil=True)
def spans(data: Any, start: Any, stop: Any) -> Any:
    """Copy spans of the data into the rows of an array, filled up with zeros."""
    width = max((stop - start).max(), 1)
    rows = np.zeros((len(start), width), np.uint8)
    for row in range(len(start)):
        rows[row, : stop[row] - start[row]] = data[start[row] : stop[row]]
    return rows


@njit(cache=True, nogil=True)
def alike(text: Any, starts: Any, ends: Any) -> Any:
    """Return for each span of the text the first one like it, or itself if no recent one is."""
    same = np.arange(len(starts))
    recent, count = np.empty(RECENT, np.int64), 0
    for span in range(len(starts)):
        found = False
        for k in range(min(count, RECENT)):
            other = recent[k]
            length = ends[span] - starts[span]
            if length != ends[other] - starts[other]:
                continue
            byte = 0
            while byte < length and text[starts[span] + byte] == text[starts[other] + byte]:
                byte += 1
            if byte == length:
                same[span], found = other, True
                break
        if not found:
            recent[count % RECENT] = span
            count += 1
    return same
