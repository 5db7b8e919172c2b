"""Conversion and concatenation of the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError

if TYPE_CHECKING:
    from sparseshot.cells.table import Cells


def as_column(values: Any, dtype: Any) -> NDArray[Any] | None:
    """Return a column of a type, or None."""
    return None if values is None else np.asarray(values, dtype=dtype)


def as_numbers(values: Any) -> NDArray[np.floating]:
    """Return a column of float32 as it is, any other as float64."""
    column: NDArray[np.floating] = np.asarray(values)
    return column if column.dtype == np.float32 else np.asarray(values, dtype=np.float64)


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


def as_notes(notes: Any, *, of: int) -> NDArray[np.object_] | None:
    """Return a column with a dictionary of texts for each of some regions, or None."""
    if notes is None:
        return None
    rows = list(notes)
    if len(rows) != of:
        raise InputError(f"{len(rows)} notes for {of} regions; give a mapping for each")
    column = np.empty(of, object)
    for row, note in enumerate(rows):
        if not isinstance(note, Mapping) or not all(
            isinstance(each, str) for each in (*note, *note.values())
        ):
            raise InputError(f"note {row} is {note!r}; give a mapping of texts")
        column[row] = dict(note)
    return column


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


def stacked_numbers(tables: Sequence["Cells"], name: str) -> NDArray[np.floating]:
    """Stack a measurement; NaN where a table lacks it."""
    missing = np.float32(np.nan)  # float32, so that it widens no column
    return np.concatenate([t.measurements.get(name, np.full(len(t), missing)) for t in tables])


def stacked_ids(tables: Sequence["Cells"]) -> NDArray[Any] | None:
    """Stack ids where every table has them; numbers and strings together become strings."""
    ids = [table.id for table in tables]
    if any(column is None for column in ids):
        return None
    kinds = {column.dtype.kind for column in ids if column is not None}
    texts = [column.astype(np.bytes_) if len(kinds) > 1 else column for column in ids if column is not None]
    return np.concatenate(texts)


def stacked_notes(tables: Sequence["Cells"]) -> list[Mapping[str, str]] | None:
    """Stack the notes of regions; regions of tables without notes get empty ones, unless none has any."""
    if all(table.region_notes is None for table in tables):
        return None
    of_tables: list[Sequence[Mapping[str, str]]] = [
        [{}] * len(table.regions) if table.region_notes is None else table.region_notes.tolist()
        for table in tables
    ]
    return [note for notes in of_tables for note in notes]
