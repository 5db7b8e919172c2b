"""MATLAB files of published data sets: label maps with types (HoVer-Net), points (CRCHistoPhenotypes)."""

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.io
from numpy.typing import NDArray

from sparseshot.cells.formats import matlab_child
from sparseshot.cells.formats.masks import cells_of, drawn_rows
from sparseshot.cells.formats.options import OpenFile, ReadOptions, WriteOptions
from sparseshot.cells.outlines import FARTHEST_PX, NOT_FINITE
from sparseshot.cells.table import Cells
from sparseshot.errors import FormatError

HALF_PX = 0.5
"""MATLAB counts from 1 and means the middle of a pixel: its (1, 1) is our (0.5, 0.5)."""
LONGEST_S = 120.0
"""Time after which reading a file is given up."""


def read(source: OpenFile, options: ReadOptions) -> Cells:
    """Read ``inst_map`` with the types in ``inst_type`` or ``type_map``, or the points of ``detection``."""
    content = _CHILD.read(source)
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


class _Child:
    """The process that reads .mat files; a new one is started after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def read(self, source: OpenFile) -> dict[str, NDArray[Any]]:
        """Return the wanted variables of a file."""
        with self._lock:
            if self._process is None:
                command = [sys.executable, "-I", str(Path(matlab_child.__file__))]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stop = threading.Timer(LONGEST_S, self._process.kill)
            stop.start()
            try:
                answer = _answer(self._process, os.path.realpath(source.name))
            except OSError:
                self.close()
                raise FormatError(
                    source.name, "cannot be read as .mat: the reader crashed or took too long"
                ) from None
            finally:
                stop.cancel()
        if answer.startswith(b"error: "):
            raise FormatError(source.name, answer.decode(errors="replace").removeprefix("error: "))
        with np.load(io.BytesIO(answer), allow_pickle=False) as content:
            return dict(content)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(OSError):  # a request that could not be sent
                self._process.communicate()
            self._process = None


def _answer(process: "subprocess.Popen[bytes]", path: str) -> bytes:
    """Ask the child for a file; OSError if it dies."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(path).encode() + b"\n")  # a name may hold a line end
    process.stdin.flush()
    size = int.from_bytes(process.stdout.read(8), "little")
    answer = process.stdout.read(size)
    if not size or len(answer) < size:
        raise BrokenPipeError
    return answer


_CHILD = _Child()
atexit.register(_CHILD.close)


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
        # HoVer-Net counts from 0 and means the middle of a pixel.
        "inst_centroid": cells.xy[visible] - HALF_PX,
        "class_names": np.array(cells.classes, dtype=object),
    }
    scipy.io.savemat(file, content, do_compression=True)


def write_points(cells: Cells, file: BinaryIO, options: WriteOptions) -> None:
    """Write ``detection``, N × 2, x and y counted from 1, as CRCHistoPhenotypes has it."""
    options.count_lost(cells, "outline", "regions", "classes", "score", "measurements", "nucleus", "name")
    scipy.io.savemat(file, {"detection": cells.xy + HALF_PX})
