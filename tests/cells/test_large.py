"""Region annotations among the cells of an export."""

from dataclasses import replace

import numpy as np
import pytest
import shapely

from sparseshot.cells import Cells, without_large_outlines
from sparseshot.errors import SparseshotWarning

CELLS = Cells(
    [[5, 5], [9, 9], [1000, 1000], [2000, 2000]],
    classes=("Tumor", "Stroma"),
    label=[0, 1, 0, -1],
    outline=[shapely.box(0, 0, 40, 40), None, shapely.box(0, 0, 3600, 3700), shapely.box(0, 0, 400, 400)],
    mpp=0.25,
)


def test_regions_among_cells_are_named_and_left_out() -> None:
    with pytest.warns(SparseshotWarning) as caught:
        kept = without_large_outlines(CELLS, "marks.geojson")
    assert kept.xy.tolist() == [[5, 5], [9, 9]]
    message = str(caught[0].message)
    assert message.startswith("marks.geojson: 2 outlines above 2,000 µm²")
    assert "'Tumor' of 832,500 µm² at (1000, 1000)" in message
    assert "'unclassified' of 10,000 µm² at (2000, 2000)" in message


def test_outlines_are_kept_on_request_or_without_a_pixel_size() -> None:
    assert len(without_large_outlines(CELLS, "a", largest_um2=np.inf)) == 4
    unknown = replace(CELLS, mpp=None)
    assert len(without_large_outlines(unknown, "a")) == 4
    with pytest.warns(SparseshotWarning, match="2 outlines"):
        assert len(without_large_outlines(unknown, "a", mpp=0.25)) == 2
    assert len(without_large_outlines(Cells([[1, 2]], mpp=0.25), "a")) == 1
