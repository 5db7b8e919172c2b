"""MATLAB files of published data sets: label maps with types (HoVer-Net), points (CRCHistoPhenotypes)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import scipy.io
from numpy.typing import NDArray

from sparseshot.cells.formats.masks import cells_of, drawn_rows, refuse_huge
from sparseshot.cells.formats.options import ReadOptions, Source, WriteOptions
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

HALF_PX = 0.5
"""MATLAB counts from 1 and means the middle of a pixel: its (1, 1) is our (0.5, 0.5)."""
_KEYS = ("inst_map", "type_map", "inst_type", "class_names", "detection")


def read(source: Source, options: ReadOptions) -> Cells:
    """Read ``inst_map`` with the types in ``inst_type`` or ``type_map``, or the points of ``detection``."""
    content = _content(source)
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


def _content(source: Source) -> dict[str, NDArray[Any]]:
    try:
        found = {name: shape for name, shape, _ in scipy.io.whosmat(source.file)}
        if not found.keys() & {"inst_map", "detection"}:
            there = ", ".join(found) or "nothing"
            raise FormatError(source.name, f"holds {there}; inst_map or detection is wanted")
        for name, shape in found.items():
            if name in _KEYS:
                refuse_huge(shape, 1, source.file)
        source.file.seek(0)
        return scipy.io.loadmat(source.file, variable_names=_KEYS)  # type: ignore[no-any-return]
    except NotImplementedError:
        raise FormatError(source.name, "is MATLAB 7.3; save it with -v7") from None
    except FormatError:
        raise
    except Exception as error:  # scipy raises of everything at broken files
        raise FormatError(source.name, f"cannot be read as .mat: {error}") from None


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
        names = tuple(str(np.squeeze(name)) for name in content["class_names"].ravel())
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


def write(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write ``inst_map``, ``type_map``, ``inst_type``, ``inst_centroid``, and the names of the classes."""
    row, values = drawn_rows(cells, options)
    visible = np.unique(row[row > 0]) - 1
    visible = visible[np.argsort(values[visible])]
    types = (cells.label + 1).astype(np.int32)
    content = {
        "inst_map": np.concatenate([[0], values])[row].astype(np.int64),
        "type_map": np.concatenate([[0], types])[row].astype(np.int32),
        "inst_type": types[visible, None],
        "inst_centroid": cells.xy[visible]
        - HALF_PX,  # HoVer-Net counts from 0 and means the middle of a pixel
        "class_names": np.array(cells.classes, dtype=object),
    }
    scipy.io.savemat(file, content, do_compression=True)
