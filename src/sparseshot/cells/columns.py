"""Conversion and concatenation of the columns of a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sparseshot.cells.table import Cells


def as_column(values: Any, dtype: Any) -> NDArray[Any] | None:
    """Return a column of a type, or None."""
    return None if values is None else np.asarray(values, dtype=dtype)


def as_ids(values: Any) -> NDArray[Any] | None:
    """Return a column of ids: whole numbers below 2⁶³ stay numbers, all else becomes UTF-8."""
    if values is None:
        return None
    names = np.asarray(values)
    if names.dtype.kind in "iu" and not (names.dtype.kind == "u" and names.max(initial=0) >= 2**63):
        return names.astype(np.int64, copy=False)
    if names.dtype.kind == "S":
        return names
    return np.array([str(name).encode() for name in names.tolist()], dtype=np.bytes_)


def as_frozen(column: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return a view that cannot be written to."""
    if column is None:
        return None
    view = column.view()
    view.flags.writeable = False
    return view


def stacked(tables: Sequence["Cells"], name: str, missing: Any) -> NDArray[Any] | None:
    """Stack a column; tables that lack it are filled, unless all do."""
    columns = [getattr(table, name) for table in tables]
    present = next((column for column in columns if column is not None), None)
    if present is None:
        return None
    filled = [
        np.full(len(table), missing, present.dtype) if column is None else column
        for table, column in zip(tables, columns, strict=True)
    ]
    return np.concatenate(filled)


def stacked_ids(tables: Sequence["Cells"]) -> NDArray[Any] | None:
    """Stack ids where every table has them; numbers and strings together become strings."""
    ids = [table.id for table in tables]
    if any(column is None for column in ids):
        return None
    kinds = {column.dtype.kind for column in ids if column is not None}
    texts = [column.astype(np.bytes_) if len(kinds) > 1 else column for column in ids if column is not None]
    return np.concatenate(texts)
