"""What prediction promises across tile sizes, batches, thread counts and CPUs."""

import math
import re
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from sparseshot.cells import Cells

UNMATCHED_SHARE = 0.001
PLACE_PX = 0.05
SCORE = 0.001


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a folder; of states without the time that was spent."""
    return {
        str(path.relative_to(folder)): re.sub(rb'"seconds": [\d.e-]+', b'"seconds": 0', path.read_bytes())
        if path.name == "state.json"
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check_same_cells(cells: Cells, expected: Cells) -> None:
    """Check that two predictions agree as docs/prediction.md promises.

    A cell on one side without a counterpart on the other is one whose score lies at the threshold.
    """
    assert (cells.mpp, cells.classes) == (expected.mpp, expected.classes)
    assert cells.score is not None
    assert expected.score is not None
    distance, partner = cKDTree(expected.xy).query(cells.xy)
    matched = (distance <= PLACE_PX) & (cells.label == expected.label[partner])
    matched &= np.abs(cells.score - expected.score[partner]) <= SCORE
    pairs = len(np.unique(partner[matched]))
    assert pairs == matched.sum(), "two cells share a counterpart"
    allowed = math.ceil(UNMATCHED_SHARE * len(expected))
    assert abs(len(cells) - len(expected)) <= allowed
    assert max(len(cells), len(expected)) - pairs <= allowed, f"{pairs} pairs of {len(expected)} cells"
