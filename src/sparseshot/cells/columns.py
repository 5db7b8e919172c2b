"""Conversion and concatenation of the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.errors import InputError


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


def stacked(
    columns: Sequence[NDArray[Any] | None], lengths: Sequence[int], missing: Any
) -> NDArray[Any] | None:
    """Stack a column of some tables; where a table lacks it, it is filled, unless all do."""
    present = next((column for column in columns if column is not None), None)
    if present is None:
        return None
    filled = [
        np.full(length, missing, present.dtype) if column is None else column
        for column, length in zip(columns, lengths, strict=True)
    ]
    return np.concatenate(filled)


def stacked_ids(ids: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """Stack ids where every table has them; numbers and strings together become strings."""
    known = [column for column in ids if column is not None]
    if len(known) < len(ids):
        return None
    is_mixed = len({column.dtype.kind for column in known}) > 1
    return np.concatenate([column.astype(np.bytes_) if is_mixed else column for column in known])
