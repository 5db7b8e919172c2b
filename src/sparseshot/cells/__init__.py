"""The table of cells, marked or found, with its file formats and nested sparse variants."""

from sparseshot.cells.formats.registry import read_cells, write_cells
from sparseshot.cells.raster import rasterise
from sparseshot.cells.simulation import MARKINGS, choose_marks, nested_subsets, subset
from sparseshot.cells.summary import without_large_outlines
from sparseshot.cells.table import Cells
from sparseshot.cells.trace import trace

__all__ = [
    "MARKINGS",
    "Cells",
    "choose_marks",
    "nested_subsets",
    "rasterise",
    "read_cells",
    "subset",
    "trace",
    "without_large_outlines",
    "write_cells",
]
