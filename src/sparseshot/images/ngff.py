"""OME-Zarr images (NGFF 0.4 and 0.5) in a folder of this computer.

Metadata are checked before Zarr sees them: which codecs it may run, how much is decoded at once, and that no
path leads out of the folder. A chunk that holds more than the metadata state is refused.
"""

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from sparseshot.errors import SlideError
from sparseshot.images.pixel_size import UM_PER_UNIT, plausible
from sparseshot.images.pyramid import BlockSlide
from sparseshot.images.slide import Box
from sparseshot.images.zarr_chunks import opened_array

_MOST_METADATA_BYTES = 2**24
_MOST_LEVELS = 32
_MOST_BYTES = {"chunks": 2**27, "blocks": 2**28, "indices of shards": 2**24}
"""Decoded at once; a block is one chunk or several small ones, in all channels."""
_LONGEST_SIDE_PX = 2**20  # 26 cm at 0.25 µm/px
_BLOCK_PX = 512  # small chunks are read together
_TYPES = {"|u1": "uint8", "<u2": "uint16", ">u2": "uint16"}
"""Types of numbers in version 2 of Zarr."""
_BYTES = {"uint8": 1, "uint16": 2}
_COMPRESSORS = frozenset({"blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma"})
_CODECS = _COMPRESSORS | {"bytes", "transpose", "crc32c", "sharding_indexed"}
"""Codecs that only decode numbers; Zarr also has some that unpickle objects."""
_INDEX_CODECS = frozenset({"bytes", "crc32c"})


_Level = tuple[Any, tuple[int, int]]
"""A Zarr array of the pyramid, and width and height of what is read of it at once."""


class _LayoutError(ValueError):
    """Metadata that are not understood; the message continues "this OME-Zarr …"."""


class OmeZarr(BlockSlide):
    """An OME-Zarr image with levels; one time and one plane, grey or RGB, of 8 or 16 bits."""

    def __init__(self, path: Path) -> None:
        try:
            axes, levels, mpp, names = _layout(path)
        except Exception as error:  # parsing an untrusted file may raise anything
            problem = error if isinstance(error, _LayoutError) else f"cannot be read ({error})"
            raise SlideError(path, f"this OME-Zarr {problem}") from error
        super().__init__(
            path,
            vendor="ome-zarr",
            levels=[(array.shape[-1], array.shape[-2]) for array, _ in levels],
            blocks=[block for _, block in levels],
            decode=partial(_read, [array for array, _ in levels], axes),
            stated_mpp=mpp,
            block_name="chunk",
            channels=names,
        )


def _read(arrays: Sequence[Any], axes: str, level: int, box: Box) -> NDArray[Any]:
    places = {"y": slice(box.y0, box.y1), "x": slice(box.x0, box.x1), "c": slice(None)}
    pixels = np.asarray(arrays[level][tuple(places.get(axis, 0) for axis in axes)])
    pixels = np.moveaxis(pixels, 0, -1) if "c" in axes else pixels
    return np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder("="), copy=False))


def _layout(path: Path) -> tuple[str, list[_Level], float | None, list[str] | None]:
    """Return the axes as letters, the levels, µm per level-0 pixel if stated, and names of three channels."""
    attributes = _attributes(path)
    if "bioformats2raw.layout" in attributes and "multiscales" not in attributes:
        path = path / "0"  # the first image of a converted file
        attributes = _attributes(path)
    if "plate" in attributes or "well" in attributes:
        raise _LayoutError("is a plate; give the folder of one of its images")
    images = attributes.get("multiscales")
    if not isinstance(images, list) or not images:
        raise _LayoutError("holds no image (no multiscales)")
    image = images[0]
    axes = [axis if isinstance(axis, Mapping) else {"name": axis} for axis in image["axes"]]
    letters = "".join(str(axis["name"]) for axis in axes)
    if letters not in {"tczyx", "czyx", "tcyx", "cyx", "tzyx", "zyx", "tyx", "yx"}:
        raise _LayoutError(f"has the axes {letters[:40]!r}; t, c, z, y, x in this order are read")
    datasets = image["datasets"]
    if not 1 <= len(datasets) <= _MOST_LEVELS:
        raise _LayoutError(f"has {len(datasets)} levels; 1 to {_MOST_LEVELS} are read")
    levels = [_level(_inside(path, str(dataset["path"])), letters) for dataset in datasets]
    widths = [array.shape[-1] for array, _ in levels]
    if widths != sorted(widths, reverse=True):
        raise _LayoutError(f"has levels of the widths {widths}; the largest must be the first")
    steps = [UM_PER_UNIT.get(str(axis.get("unit")), math.nan) for axis in axes[-2:]]
    for holder in (datasets[0], image):
        for transform in holder.get("coordinateTransformations", ()):
            if transform.get("type") == "scale":
                steps = [
                    step * float(scale) for step, scale in zip(steps, transform["scale"][-2:], strict=True)
                ]
    number = dict(zip(letters, levels[0][0].shape, strict=True)).get("c", 1)
    omero = attributes.get("omero")
    channels = omero.get("channels", ()) if isinstance(omero, Mapping) else ()
    names = [str(each.get("label", "")) for each in channels if isinstance(each, Mapping)]
    return letters, levels, plausible(*steps), names if number == 3 else None


def _attributes(folder: Path) -> Mapping[str, Any]:
    """Return the attributes that the specification defines: below ``ome`` in version 0.5."""
    if (folder / "zarr.json").is_file():
        attributes = _json(folder / "zarr.json").get("attributes", {})
        inner = attributes.get("ome", attributes)
        return inner if isinstance(inner, Mapping) else {}
    return _json(folder / ".zattrs")


def _json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _MOST_METADATA_BYTES:
            raise _LayoutError(f"has {path.stat().st_size:,} bytes of metadata in {path.name}")
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise _LayoutError(f"lacks {path.parent.name}/{path.name}") from None
    except ValueError as error:
        raise _LayoutError(f"has metadata that are not JSON in {path.name} ({error})") from None
    if not isinstance(content, Mapping):
        raise _LayoutError(f"has no object in {path.name}")
    return content


def _inside(root: Path, name: str) -> Path:
    """Return the folder of this name below another."""
    place = PurePosixPath(name)
    folder = root / place
    if place.is_absolute() or ".." in place.parts or not folder.resolve().is_relative_to(root.resolve()):
        raise _LayoutError(f"names {name[:80]!r}, which lies elsewhere")
    return folder


def _array(folder: Path) -> Mapping[str, Any]:
    """Return the metadata of an array; those of version 2 as version 3 would write them."""
    if (folder / "zarr.json").is_file():
        return _json(folder / "zarr.json")
    old = _json(folder / ".zarray")
    if old.get("filters"):
        raise _LayoutError(f"has filters {old['filters']}, which are not read")
    kind, compressor = str(old["dtype"]), old.get("compressor")
    codecs = [{"name": "bytes", "configuration": {"endian": "big" if kind[0] == ">" else "little"}}]
    if old.get("order") == "F":
        last_first = [*range(len(old["shape"]))][::-1]
        codecs.insert(0, {"name": "transpose", "configuration": {"order": last_first}})
    separator = old.get("dimension_separator", ".")
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": old["shape"],
        "data_type": _TYPES.get(kind, kind),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": old["chunks"]}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": separator}},
        "codecs": codecs + ([{"name": compressor["id"]}] if compressor else []),
        "fill_value": old.get("fill_value") or 0,
    }


def _level(folder: Path, axes: str) -> _Level:
    """Check the array of a level and open it."""
    content = _array(folder)
    kind, grid = str(content["data_type"]), content["chunk_grid"]
    if kind not in _BYTES:
        raise _LayoutError(f"has values of type {kind[:40]!r}; unsigned ones of 8 or 16 bits are read")
    if grid["name"] != "regular":
        raise _LayoutError(f"has chunks of the kind {grid['name']!r}")
    if content.get("storage_transformers"):
        raise _LayoutError("has storage transformers")
    stored = grid["configuration"]["chunk_shape"]
    chunks = _checked_codecs(content["codecs"], stored)
    shape = tuple(content["shape"])
    for sides in (shape, stored, chunks):
        if len(sides) != len(axes) or not all(
            type(each) is int and 0 < each <= _LONGEST_SIDE_PX for each in sides
        ):
            raise _LayoutError(f"has an array of {str(sides)[:80]} for the axes {axes}")
    length = dict(zip(axes, shape, strict=True))
    if length.get("t", 1) != 1 or length.get("z", 1) != 1 or length.get("c", 1) not in {1, 3, 4}:
        raise _LayoutError(f"has {length}; one time, one plane, and grey or RGB are read")
    height, width = (side * -(-_BLOCK_PX // side) for side in chunks[-2:])
    sizes = {
        "chunks": math.prod(chunks) * _BYTES[kind],
        "blocks": min(height, shape[-2]) * min(width, shape[-1]) * length.get("c", 1) * _BYTES[kind],
        "indices of shards": 16 * math.prod(map(operator.floordiv, stored, chunks)),
    }
    for what, size in sizes.items():
        if size > _MOST_BYTES[what]:
            raise _LayoutError(f"has {what} of {size:,} bytes; at most {_MOST_BYTES[what]:,} are read")
    return opened_array(folder, content, sizes["chunks"]), (width, height)


def _checked_codecs(codecs: Any, chunks: Sequence[int], known: Collection[str] = _CODECS) -> Sequence[int]:
    """Check codecs, those inside shards included; return the size of what is decoded at once."""
    names = [codec["name"] for codec in codecs]
    for name in names:
        if name not in known:
            raise _LayoutError(f"has the codec {str(name)[:40]!r}; known are {', '.join(sorted(known))}")
    if "sharding_indexed" not in names:
        return chunks
    if len(names) > 1:  # chunks could only be had from a whole shard
        raise _LayoutError(f"has the codecs {', '.join(names)} around its shards; shards alone are read")
    inner = codecs[0]["configuration"]
    _checked_codecs(inner.get("index_codecs", ()), (), _INDEX_CODECS)
    return _checked_codecs(inner["codecs"], inner["chunk_shape"], _CODECS - {"sharding_indexed"})
