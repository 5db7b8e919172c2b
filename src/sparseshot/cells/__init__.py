"""What people marked and what a model found: one table, its formats, its nested sparse variants."""

from sparseshot.cells.raster import rasterise
from sparseshot.cells.table import Cells
from sparseshot.cells.trace import trace

__all__ = ["Cells", "rasterise", "trace"]
