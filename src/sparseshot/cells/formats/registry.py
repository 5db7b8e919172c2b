"""Reading and writing cells in any format."""

import gzip
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from sparseshot.cells.formats.options import ReadOptions, WriteOptions, checked, sources
from sparseshot.cells.repairs import Repairs
from sparseshot.cells.table import Cells
from sparseshot.errors import DataNotFoundError, FormatError, InputError, SparseshotWarning, unknown_name
from sparseshot.files import replacing, replacing_folder


class Format(NamedTuple):
    """Modules that read and write a format, and the endings of names that choose it for writing."""

    reader: str
    writer: str
    endings: tuple[str, ...]
    streams: bool = True  # can be read from inside an archive, front to back
    is_folder: bool = False


FORMATS = MappingProxyType(
    {
        "qupath": Format("qupath", "qupath_write", (".geojson", ".json")),
        "geoparquet": Format("geoparquet", "geoparquet", (".parquet", ".geoparquet"), streams=False),
        "coco": Format("coco", "coco", (".coco.json",)),
        "aperio": Format("aperio", "aperio", (".xml",)),
        "asap": Format("asap", "asap", (".asap.xml",)),
        "csv": Format("points_csv", "points_csv", (".csv", ".tsv", ".txt")),
        "mask": Format("masks", "masks", (".png", ".tif", ".tiff", ".npy"), streams=False),
        "matlab": Format("matlab", "", (), streams=False),
        "anndata": Format("", "anndata_file", (".h5ad",), streams=False),
        "spatialdata": Format("", "anndata_file.write_store", (".zarr",), streams=False, is_folder=True),
    }
)
"""Formats by name; names that end in .gz or, for QuPath, .zip are compressed.

A format without a reader is only written, and one without a writer only read.
"""

_MAGIC = {
    b"PAR1": "geoparquet",
    b"\x89PNG\r\n\x1a\n": "mask",
    b"II*\0": "mask",
    b"MM\0*": "mask",
    b"II+\0": "mask",
    b"MM\0+": "mask",
    b"\x93NUMPY": "mask",
    b"MATLAB": "matlab",
}
_COCO_KEYS = {b"info", b"licenses", b"images", b"annotations", b"categories"}
_XML_ROOTS = {b"ASAP_Annotations": "asap", b"Annotations": "aperio"}

STORE_MARKS = ("zarr.json", ".zgroup", ".zattrs")
"""Files that tell a Zarr folder from another, which is never replaced."""


def sniff(head: bytes, name: str) -> str:
    """Return the name of the format.

    >>> sniff(b'{"images": [', "cells.json"), sniff(b'[{"type": "Feature"', "cells.json")
    ('coco', 'qupath')
    """
    for magic, format_name in _MAGIC.items():
        if head.startswith(magic):
            return format_name
    suffix = PurePath(name.removesuffix(".gz")).suffix.lower()
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if is_utf16:
        head = head[: len(head) // 2 * 2].decode("utf-16", errors="ignore").encode()
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        root = re.search(rb"<([A-Za-z_][\w.:-]*)", text)
        if root is None or root[1] not in _XML_ROOTS:
            what = root[1].decode(errors="replace") if root else text[:20].decode(errors="replace")
            raise FormatError(
                name, f"is XML of {what!r}; known are the annotations of ImageScope, HALO and ASAP"
            )
        return _XML_ROOTS[root[1]]
    if is_utf16 and text:
        raise FormatError(name, "is text in UTF-16; save it in UTF-8")
    if text.startswith(b"{"):
        key = re.match(rb'\{\s*"([^"]*)"', text)
        return "coco" if key and key[1] in _COCO_KEYS else "qupath"
    if text.startswith(b"["):
        return "coco" if re.match(rb'\[\s*\{[^{}\[\]]*"(image_id|category_id)"', text) else "qupath"
    if suffix == ".mat":
        return "matlab"  # version 4 has no magic number
    if not text:
        raise FormatError(name, "is empty")
    if b"\0" in text or suffix not in {".csv", ".tsv", ".txt"}:
        raise FormatError(
            name,
            "is in no known format; known are QuPath GeoJSON, GeoParquet, COCO, XML of ImageScope, HALO and "
            "ASAP, CSV, label masks (PNG, TIFF, NPY) and .mat",
        )
    return "csv"


def read_cells(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002  what users call it
    mpp: float | None = None,
    slide_mpp: float | None = None,
    classes: Sequence[str] | None = None,
    unclassified: str | None = None,
    size_px: tuple[int, int] | None = None,
    exhaustive_class: str = "Exhaustive",
    image: str | int | None = None,
    columns: Sequence[str] | None = None,
) -> Cells:
    """Read cells from a file in any known format, recognised by its content.

    Damage is repaired where that is safe; one :class:`~sparseshot.errors.RepairWarning` counts the repairs.
    Everything else is a :class:`~sparseshot.errors.FormatError` that names the file and the place in it.

    Args:
        path: the file; also .gz, and .zip of several GeoJSON files.
        format: a name in :data:`FORMATS`, instead of recognising the content.
        mpp: µm per level-0 pixel, instead of the value in the file.
        slide_mpp: µm per level-0 pixel of the slide, to place cells whose file has coordinates in µm; any
            value in the file is kept.
        classes: the expected classes, in this order; a file with others is refused.
        unclassified: name of a class for cells without one.
        size_px: width and height of the slide; cells outside are left out, swapped axes refused, and a label
            mask must have this size.
        exhaustive_class: annotations of this class, in upper or lower case, are regions in which every cell
            is marked.
        image: which image of a COCO file or a measurement table with several: its file name or id.
        columns: names of the columns of a CSV file without a header, e.g. ``("y", "x", "class")``.
    """
    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(path, "is a folder, not a file" if path.is_dir() else "there is no such file")
    options = ReadOptions(
        Repairs(),
        exhaustive_class,
        mpp or slide_mpp,
        image,
        None if columns is None else tuple(columns),
        size_px,
    )
    tables = []
    for source in sources(path):
        name = format or sniff(source.file.peek(4096), source.name)  # type: ignore[attr-defined]
        known = _format(name)
        if not known.reader:
            raise FormatError(
                source.name, f"{name} is written, but not read; convert it with its own library"
            )
        if not known.streams and source.file.seekable() is False:
            raise FormatError(source.name, f"{name} is not read from inside an archive; unpack it first")
        try:
            cells = _module(known.reader).read(source, options)
        except InputError as error:  # raised by the table
            raise FormatError(source.name, str(error)) from None
        except MemoryError:
            raise FormatError(source.name, "needs more memory than there is; divide the file") from None
        tables.append(cells if mpp is None else replace(cells, mpp=mpp))
    try:
        cells = Cells.concatenate(tables)
    except InputError as error:
        raise FormatError(path, str(error)) from None
    cells = checked(cells, path, options.repairs, classes=classes, unclassified=unclassified, size_px=size_px)
    options.repairs.warn(str(path))
    return cells


def write_cells(
    cells: Cells,
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002
    size_px: tuple[int, int] | None = None,
    exhaustive_class: str = "Exhaustive",
    decimals: int = 2,
) -> None:
    """Write cells to a file in the format of its name. A failed write leaves nothing behind.

    Columns that the format cannot hold are left out, with one warning that counts them.

    Args:
        cells: the table.
        path: e.g. ``cells.parquet``, ``cells.geojson.gz``, ``cells.coco.json``, ``mask.png``.
        format: a name in :data:`FORMATS`, instead of the one of the name.
        size_px: width and height of a label mask; by default as large as the cells need.
        exhaustive_class: class of the annotations that exhaustive regions become.
        decimals: of coordinates in GeoJSON; QuPath itself writes two.
    """
    path = Path(path)
    known, packed = format_of(path, format)
    suffix = Path(path.name.lower().removesuffix(packed)).suffix
    options = WriteOptions(Repairs(), exhaustive_class, size_px, decimals, suffix)
    module, _, function = known.writer.partition(".")
    write = getattr(_module(module), function or "write")
    if known.is_folder:
        with replacing_folder(path, marks=STORE_MARKS) as temporary:
            write(cells, temporary, options)
    else:
        with replacing(path) as temporary, _opened(temporary, packed, path.name) as file:
            write(cells, file, options)
    options.losses.warn(str(path), SparseshotWarning)


def format_of(path: Path, format: str | None = None) -> tuple[Format, str]:  # noqa: A002
    """Return the format in which a file is written, and the ending of its compression, if any."""
    name = path.name.lower()
    packed = next((end for end in (".gz", ".zip") if name.endswith(end)), "")
    chosen = format or _by_ending(path, name.removesuffix(packed))
    if packed == ".zip" and chosen != "qupath":
        raise InputError(f"{path}: only QuPath's GeoJSON is written as .zip, not {chosen}")
    known = _format(chosen)
    if not known.writer:
        raise InputError(f"{path}: {chosen} is read, but not written; choose another format")
    if packed and not known.streams:
        raise InputError(f"{path}: {chosen} is packed by itself; leave {packed} out of the name")
    return known, packed


def _by_ending(path: Path, name: str) -> str:
    if path.suffix.lower() == ".zip" and not Path(name).suffix:
        return "qupath"
    endings = [(ending, format_name) for format_name, known in FORMATS.items() for ending in known.endings]
    for ending, format_name in sorted(endings, key=lambda pair: -len(pair[0])):
        if name.endswith(ending):
            return format_name
    known = ", ".join(ending for ending, _ in endings)
    raise InputError(f"{path}: no format has this ending; known are {known}, or give format= (convert --to)")


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(unknown_name("format", name, FORMATS))
    return FORMATS[name]


def _module(name: str) -> Any:
    """Import a format on first use, since some need large libraries."""
    return import_module(f"sparseshot.cells.formats.{name}")


@contextmanager
def _opened(path: Path, packed: str, name: str) -> Iterator[BinaryIO]:
    with path.open("w+b") as file:  # HDF5 reads what it has written
        if packed == ".gz":
            # Without a time, so that equal cells are equal files.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        elif packed == ".zip":
            inner = zipfile.ZipInfo(Path(name).stem.removesuffix(".geojson") + ".geojson")
            inner.compress_type = zipfile.ZIP_DEFLATED
            with zipfile.ZipFile(file, "w") as archive, archive.open(inner, "w", force_zip64=True) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield file
