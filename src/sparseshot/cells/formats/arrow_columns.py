"""Columns of Arrow tables as columns of cells, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseshot.cells.formats.options import LONGEST_ID_BYTES
from sparseshot.cells.outlines import FARTHEST_PX
from sparseshot.cells.table import KINDS, MOST_CLASSES, Cells
from sparseshot.errors import FormatError


def floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Return numbers as float64, missing ones as NaN."""
    values = column.cast(pa.float64())
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    array: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return array


def numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.floating]:
    """Return float32 numbers as they are, all others as float64; missing ones as NaN."""
    values = floats(column)
    return values.astype(np.float32) if pa.types.is_float32(column.type) else values


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
            whole: NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return whole
        except pa.ArrowInvalid:
            pass  # beyond int64
    texts = column.cast(pa.string()).fill_null("").cast(pa.binary())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > LONGEST_ID_BYTES:
        raise FormatError(where, f"an id has {longest:,} bytes; at most {LONGEST_ID_BYTES} are possible")
    return texts.to_numpy(zero_copy_only=False).astype(f"S{max(longest, 1)}")  # type: ignore[no-any-return]


def cells_of_columns(
    columns: Mapping[str, pa.Array],
    xy: NDArray[np.float64],
    where: str,
    *,
    classes: tuple[str, ...] = (),
    measurements: Mapping[str, str],
    outline: NDArray[np.object_] | None = None,
    nucleus: NDArray[np.object_] | None = None,
) -> Cells:
    """Build cells from the columns that there are; rows without finite coordinates are left out.

    Args:
        columns: ``class``, ``score``, ``id``, ``kind``, ``name``, and measurements.
        xy: ``(N, 2)`` coordinates.
        where: name of the file, for messages.
        classes: the known classes, before others.
        measurements: the name of the measurement that a column holds.
        outline: ``(N,)`` shapes, or None.
        nucleus: ``(N,)`` shapes, or None.
    """
    label, names, kind = np.zeros(len(xy), np.int16), classes or ("cell",), None
    if "class" in columns:
        label, names = class_codes(columns["class"], classes, where)
    if "kind" in columns:
        kind, kinds = class_codes(columns["kind"], KINDS, where)
        if kinds != KINDS:
            unknown = kinds[len(KINDS)]
            raise FormatError(where, f"has objects of kind {unknown!r}; known are {', '.join(KINDS)}")
    placed = np.abs(xy).max(axis=1, initial=0) <= FARTHEST_PX
    return Cells(
        np.where(placed[:, None], xy, 0),
        classes=names,
        label=label,
        score=floats(columns["score"]) if "score" in columns else None,
        outline=outline,
        id=ids(columns["id"], where) if "id" in columns else None,
        measurements={name: numbers(columns[column]) for column, name in measurements.items()},
        kind=kind,
        name=columns["name"].cast(pa.string()).to_pylist() if "name" in columns else None,
        nucleus=nucleus,
    )[placed]


def columns_of_cells(cells: Cells) -> dict[str, pa.Array]:
    """Return coordinates, class, and score, id, kind and name if there are any."""
    columns = {
        "x": pa.array(cells.xy[:, 0]),
        "y": pa.array(cells.xy[:, 1]),
        "class": _names(cells.label, cells.classes),
    }
    if cells.score is not None:
        columns["score"] = pa.array(cells.score)
    if cells.id is not None:
        columns["id"] = pa.array(cells.id)
        if cells.id.dtype.kind == "S":
            columns["id"] = columns["id"].cast(pa.string())
    if cells.kind is not None:
        columns["kind"] = _names(cells.kind.astype(np.int16), KINDS)
    if cells.name is not None:
        columns["name"] = pa.array(cells.name, pa.string())
    return columns


def _names(codes: NDArray[np.int16], names: tuple[str, ...]) -> pa.Array:
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
