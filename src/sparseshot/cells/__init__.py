"""What people marked and what a model found: one table, its formats, its nested sparse variants."""

from sparseshot.cells.table import Cells

__all__ = ["Cells"]
