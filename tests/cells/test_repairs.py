"""Counts of repairs in words."""

import pytest

from sparseshot.cells.repairs import Repairs
from sparseshot.errors import RepairWarning


@pytest.mark.parametrize(
    ("what", "one"),
    [
        ("cells with coordinates that are not finite left out", "cell with coordinates that are not finite"),
        ("empty geometries left out", "empty geometry left out"),
        ("classes left out", "class left out"),
        ("nuclei left out", "nucleus left out"),
        ("notes of regions left out", "note of regions left out"),
        ("missing ids filled in", "missing id filled in"),
    ],
)
def test_one_is_singular(what: str, one: str) -> None:
    repairs = Repairs()
    repairs.count(what)
    with pytest.warns(RepairWarning, match=f"a: 1 {one}"):
        repairs.warn("a")
    repairs.count(what)
    with pytest.warns(RepairWarning, match=f"a: 2 {what}"):
        repairs.warn("a")
