"""MATLAB files of published data sets: label maps with types (HoVer-Net), points (CRCHistoPhenotypes)."""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells.formats.masks import FREE_BYTES, MOST_EXPANSION, cells_of
from sparseshot.cells.formats.options import OpenFile, ReadOptions
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

HALF_PX = 0.5
"""MATLAB counts from 1 and means the middle of a pixel: its (1, 1) is our (0.5, 0.5)."""
_WANTED = ("inst_map", "type_map", "inst_type", "class_names", "detection")
_COMPRESSED, _CELL, _CHAR, _NUMBERS = 15, 1, 4, range(6, 16)
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read ``inst_map`` with the types in ``inst_type`` or ``type_map``, or the points of ``detection``."""
    content = _variables(source)
    if "inst_map" in content:
        return _instances(content, source.name, options)
    points = content["detection"]
    if points.size == 0:
        points = points.reshape(0, 2)
    if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "iuf":
        raise FormatError(source.name, f"detection has shape {points.shape}; it must be N × 2, x and y")
    xy = points.astype(np.float64) - HALF_PX
    finite = np.abs(xy).max(axis=1, initial=0) <= FARTHEST_PX
    options.repairs.count(NOT_FINITE, (~finite).sum())
    return Cells(xy[finite])


def _variables(source: OpenFile) -> dict[str, NDArray[Any]]:
    """Return the wanted variables of a file.

    SciPy's reader, which is compiled, can be crashed by a damaged file; these few elements need no more.
    """
    data = source.file.read()
    if data[124:126] in {b"\x00\x02", b"\x02\x00"}:
        raise FormatError(source.name, "is MATLAB 7.3; save it with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise FormatError(source.name, "is not .mat of version 5 to 7; save it with -v7")
    found: dict[str, NDArray[Any]] = {}
    others = []
    left = max(FREE_BYTES, MOST_EXPANSION * len(data))
    try:
        for kind, content in _elements(data[128:], order):
            if kind == _COMPRESSED:
                packed = zlib.decompressobj()
                content = packed.decompress(content, left)  # noqa: PLW2901
                left -= len(content)
                if not packed.eof:
                    raise ValueError("a variable is cut off, or unpacks to far more than the file")
                content = next(_elements(content, order))[1]  # noqa: PLW2901
            name, array = _variable(content, order)
            if array is not None and name in _WANTED:
                found[name] = array
            others.append(name)
    except (ValueError, KeyError, RecursionError, StopIteration, struct.error, zlib.error) as error:
        raise FormatError(source.name, f"cannot be read as .mat: {error!r}; copy it again") from None
    if not {"inst_map", "detection"} & found.keys():
        names = ", ".join(others)[:200] or "nothing"
        raise FormatError(source.name, f"holds {names}; inst_map or detection is needed")
    return found


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each data element."""
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from(order + "II", data, place)
        place += 8
        if kind >> 16:  # at most four bytes, which stand in the second half of the tag
            yield kind & 0xFFFF, data[place - 4 : place - 4 + min(kind >> 16, 4)]
            continue
        if size > len(data) - place:
            raise ValueError("an element is cut off")
        yield kind, data[place : place + size]
        place += size if kind == _COMPRESSED else -(-size // 8) * 8


def _variable(data: bytes, order: str) -> tuple[str, NDArray[Any] | None]:
    """Return name and values of a matrix of numbers, a text, or a cell array of texts; None for others."""
    parts = _elements(data, order)
    kind = struct.unpack(order + "II", next(parts)[1])[0] & 0xFF
    shape = np.frombuffer(next(parts)[1], order + "i4").tolist()
    name = next(parts)[1].decode("ascii")
    if kind == _CELL:
        texts = [_variable(part, order)[1] for _, part in parts]
        return name, np.array(["" if each is None or each.size != 1 else str(each.item()) for each in texts])
    if kind == _CHAR:
        number, content = next(parts, (16, b""))
        wide = "utf-16-le" if order == "<" else "utf-16-be"
        return name, np.array(content.decode(wide if number in {4, 17} else "utf-8"))
    if kind not in _NUMBERS:
        return name, None
    number, content = next(parts)
    values = np.frombuffer(content, order + _TYPES[number])
    return name, values.astype(values.dtype.newbyteorder("=")).reshape(shape, order="F")


def _instances(content: Mapping[str, NDArray[Any]], where: str, options: ReadOptions) -> Cells:
    labels = content["inst_map"]
    cells = cells_of(labels, where, options, may_be_binary=False)
    for name in ("inst_type", "type_map"):
        if name in content and content[name].dtype.kind not in "iuf":
            raise FormatError(where, f"{name} holds {content[name].dtype}; types are numbers")
    if "inst_type" in content:
        types = content["inst_type"].ravel().astype(np.int64)
        if len(types) != len(cells):
            raise FormatError(where, f"has {len(cells)} instances but {len(types)} types in inst_type")
    elif "type_map" in content:
        if content["type_map"].shape != labels.shape:
            raise FormatError(where, f"type_map is {content['type_map'].shape}, inst_map {labels.shape}")
        types = _majority(labels, content["type_map"].astype(np.int64))
    else:
        return cells
    if types.min(initial=0) < 0:
        raise FormatError(where, f"has an instance of type {types.min()}; types are 0 and up")
    if "class_names" in content:
        names = tuple(str(name) for name in content["class_names"].ravel())
        if types.max(initial=0) > len(names):
            raise FormatError(where, f"has type {types.max()}, but {len(names)} class_names")
        return replace(cells, classes=names, label=(types - 1).astype(np.int16))
    known = np.unique(types[types > 0])
    label = np.where(types > 0, np.searchsorted(known, types), -1)
    return replace(cells, classes=tuple(map(str, known.tolist())), label=label.astype(np.int16))


def _majority(labels: NDArray[Any], types: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the type that most pixels of each label have."""
    inside = labels > 0
    pairs, counts = np.unique(np.stack([labels[inside], types[inside]]), axis=1, return_counts=True)
    order = np.lexsort((-counts, pairs[0]))
    _, first = np.unique(pairs[0][order], return_index=True)
    majority: NDArray[np.int64] = pairs[1][order][first].astype(np.int64)
    return majority
