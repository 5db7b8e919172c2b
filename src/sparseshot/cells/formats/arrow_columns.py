"""Columns of Arrow tables as columns of cells, and back."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseshot.cells.formats.checks import LONGEST_ID_BYTES, filled_ids
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import MOST_CLASSES
from sparseshot.errors import FormatError


def floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Return numbers as float64, missing ones as NaN."""
    values = column.cast(pa.float64())
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return numbers


def class_codes(
    column: pa.Array, known: tuple[str, ...], where: str
) -> tuple[NDArray[np.int16], tuple[str, ...]]:
    """Return the number of each name, -1 for none, and all names: the known ones, then others."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    names = [str(name) for name in column.dictionary.to_pylist()]
    every = tuple(dict.fromkeys([*known, *names]))
    if len(every) > MOST_CLASSES:
        raise FormatError(where, f"has {len(every):,} classes; are they ids?")
    number = {name: i for i, name in enumerate(every)}
    codes = np.array([*(number[name] for name in names), -1], np.int16)
    return codes[column.indices.fill_null(-1).to_numpy(zero_copy_only=False)], every


def ids(column: pa.Array, where: str) -> NDArray[Any]:
    """Return ids: whole numbers if all are below 2⁶³, else texts, empty for missing ones."""
    if pa.types.is_integer(column.type) and not column.null_count:
        try:
            numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return numbers
        except pa.ArrowInvalid:
            pass  # beyond int64
    texts = column.cast(pa.string()).fill_null("").cast(pa.binary())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > LONGEST_ID_BYTES:
        raise FormatError(where, f"an id has {longest:,} bytes; at most {LONGEST_ID_BYTES} are possible")
    return texts.to_numpy(zero_copy_only=False).astype(f"S{max(longest, 1)}")  # type: ignore[no-any-return]


def texts_as_ids(texts: list[str | None], where: str, repairs: Repairs) -> NDArray[Any] | None:
    """Return ids from texts: whole numbers if each is written as one."""
    column = pa.array(texts, pa.string())
    try:
        numbers = column.cast(pa.int64())
        if numbers.cast(pa.string()).equals(column) and not column.null_count:
            return ids(numbers, where)
    except pa.ArrowInvalid:
        pass
    return filled_ids(ids(column, where), repairs)


def id_column(column: NDArray[Any]) -> pa.Array:
    """Return ids for Arrow; texts by way of bytes, without which they would keep their padding."""
    values = pa.array(column)
    return values.cast(pa.string()) if column.dtype.kind == "S" else values
