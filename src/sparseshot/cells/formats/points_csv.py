"""Points as text: CSV with a header, measurement tables of QuPath, or columns of numbers."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import shapely

from sparseshot.cells.formats.arrow_columns import cells_of_columns, columns_of_cells, floats
from sparseshot.cells.formats.options import (
    OpenFile,
    ReadOptions,
    WriteOptions,
    chosen_image,
    filled_ids,
    with_score,
)
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE
from sparseshot.cells.table import KINDS, Cells
from sparseshot.errors import FormatError

_NAMES = {
    "x": ("x", "x_px", "centroid x px", "centroid_x", "column", "col"),
    "y": ("y", "y_px", "centroid y px", "centroid_y", "row"),
    "x_um": ("x_um", "centroid x µm", "centroid x μm", "centroid x um"),  # two signs look like µ
    "y_um": ("y_um", "centroid y µm", "centroid y μm", "centroid y um"),
    "class": ("class", "classification", "label", "type", "cell_type"),
    "score": ("score", "detection probability", "probability", "confidence"),
    "id": ("id", "object id"),
    "kind": ("kind", "object type"),
    "name": ("name",),
    "image": ("image",),
}
_MEANING = {name: meaning for meaning, names in _NAMES.items() for name in names}
_WITHOUT_HEADER = {2: ("x", "y"), 3: ("x", "y", "class")}
_TEXTS = ("class", "id", "kind", "name", "image")
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
_MOST_NUMBERED = 20
"""Rows up to which classes may be numbers of which none repeats."""
_PREFIX = "measurement "
_FORMULA = re.compile(r"'?[=+\-@\t\r]")
"""Beginning of a text that a spreadsheet would run as a formula; such texts get an apostrophe before them."""


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read points; other columns of numbers become measurements."""
    data = source.file.read().removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    first = data.partition(b"\n")[0].rstrip(b"\r")
    unquoted = re.sub(rb'"[^"]*"', b"", first)
    delimiter = next((mark for mark in "\t;," if mark.encode() in unquoted), " ")
    if delimiter == " ":
        data = re.sub(rb"(?m)^ +| +(?=\r?$)", b"", re.sub(rb" +", b" ", data))
        first = b" ".join(first.split())
    try:
        (fields,) = csv.reader([first.decode(errors="replace")], delimiter=delimiter, skipinitialspace=True)
    except (csv.Error, ValueError) as error:
        raise FormatError(source.name, f"its first line cannot be understood: {error}") from None
    has_header = options.columns is None and not all(_NUMBER.fullmatch(field.strip()) for field in fields[:2])
    names = _names(fields if has_header else options.columns, len(fields), source.name)
    table = _parsed(data, names, delimiter, has_header=has_header, where=source.name)
    return _cells(table, source.name, options)


def _names(given: Sequence[str] | None, width: int, where: str) -> list[str]:
    """Return the meaning of each column, or its own name."""
    if given is None:
        if width not in _WITHOUT_HEADER:
            raise FormatError(where, f'has {width} columns and no header; name them: columns=("x", "y", …)')
        given = _WITHOUT_HEADER[width]
    texts = [_without_apostrophe(name.strip()) for name in given]
    names = [_MEANING.get(text.casefold(), text) for text in texts]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise FormatError(where, f"has more than one column for {', '.join(sorted(repeated))}")
    if not ({"x", "y"} <= set(names) or {"x_um", "y_um"} <= set(names)):
        raise FormatError(where, f"has columns {', '.join(texts[:20])}; x and y are needed")
    return names


def _parsed(data: bytes, names: list[str], delimiter: str, *, has_header: bool, where: str) -> pa.Table:
    types = {name: pa.float64() for name in ("x", "y", "x_um", "y_um", "score")}
    types |= {name: pa.string() for name in _TEXTS}
    decimal_comma = delimiter == ";" and re.search(rb"\d,\d", data[:10_000]) is not None
    try:
        return pa.csv.read_csv(
            pa.py_buffer(data),
            pa.csv.ReadOptions(column_names=names, skip_rows=int(has_header), use_threads=False),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
            pa.csv.ConvertOptions(
                column_types={name: kind for name, kind in types.items() if name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point="," if decimal_comma else ".",
            ),
        )
    except pa.ArrowException as error:
        cure = "; save it in UTF-8" if "UTF8" in str(error) else ""
        raise FormatError(where, f"cannot be read as a table of {', '.join(names)}: {error}{cure}") from None


def _cells(table: pa.Table, where: str, options: ReadOptions) -> Cells:
    if "image" in table.column_names:
        names = [name for name in pc.unique(table["image"]).to_pylist() if name is not None]
        chosen = chosen_image({name: name for name in names}, options.image, where)
        table = table if chosen is None else table.filter(pc.equal(table["image"], chosen))
    columns = dict(zip(table.column_names, table.combine_chunks().columns, strict=True))
    if "x" in columns and "y" in columns:
        xy = np.column_stack([floats(columns["x"]), floats(columns["y"])])
    elif options.mpp is None:
        raise FormatError(where, "has coordinates in µm; give mpp, the size of a pixel, to read it")
    else:
        xy = np.column_stack([floats(columns["x_um"]), floats(columns["y_um"])]) / options.mpp
    options.repairs.count(NOT_FINITE, len(xy) - (np.abs(xy) <= FARTHEST_PX).all(axis=1).sum())
    for name in columns.keys() & set(_TEXTS):
        texts = [text and _without_apostrophe(text) for text in columns[name].to_pylist()]
        if name == "class":
            texts = [(text and text.strip()) or None for text in texts]
        elif name == "kind":
            texts = [str(text).casefold() for text in texts]
        columns[name] = pa.array(texts, pa.string())
    if "kind" in columns and not set(columns["kind"].unique().to_pylist()) <= set(KINDS):
        del columns["kind"]
    if "id" not in columns and _are_ids(columns.get("class")):
        columns["id"] = columns.pop("class")
        options.repairs.count("classes that are a different number in each row taken for ids", len(xy))
    if "id" in columns:
        columns["id"] = _whole_numbers(columns["id"])
    measurements = {
        name: name.removeprefix(_PREFIX)
        for name, column in columns.items()
        if name not in _NAMES and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
    }
    cells = cells_of_columns(columns, xy, where, measurements=measurements)
    return replace(with_score(cells, cells.score), id=filled_ids(cells.id, options.repairs))


def _are_ids(classes: pa.Array | None) -> bool:
    """Return whether classes are instance numbers: segmentation programs call these labels too."""
    if classes is None or len(classes) <= _MOST_NUMBERED or pc.count_distinct(classes).as_py() < len(classes):
        return False
    return bool(pa.types.is_integer(_whole_numbers(classes).type))


def _whole_numbers(texts: pa.Array) -> pa.Array:
    """Return texts as numbers if each is written as a whole one."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts
    return numbers if numbers.cast(pa.string()).equals(texts) else texts


def _without_apostrophe(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def with_apostrophe(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula.

    >>> with_apostrophe("=1+2"), with_apostrophe("CD3+")
    ("'=1+2", 'CD3+')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write x, y, class, the other columns that there are, and the areas of outlines."""
    options.count_lost(cells, "outline", "nucleus", "regions")
    columns: dict[str, Any] = {}
    for name, column in columns_of_cells(cells).items():
        is_text = name in _TEXTS and not pa.types.is_integer(column.type)
        texts = (text and with_apostrophe(text) for text in column.to_pylist()) if is_text else ()
        columns[name] = pa.array(texts, pa.string()) if is_text else column
    for name, column in cells.measurements.items():
        taken = name.casefold() in _MEANING or name.startswith(_PREFIX)
        columns[with_apostrophe(_PREFIX + name if taken else name)] = column
    if cells.outline is not None:
        area_px2 = shapely.area(cells.outline)
        columns.setdefault("area_px2", area_px2)
        if cells.mpp is not None:
            columns.setdefault("area_um2", area_px2 * cells.mpp**2)
    delimiter = "\t" if options.suffix == ".tsv" else ","
    pa.csv.write_csv(pa.table(columns), file, pa.csv.WriteOptions(delimiter=delimiter))
