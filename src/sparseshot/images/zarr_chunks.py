"""Zarr arrays whose chunks are read and unpacked within limits.

Codecs of Zarr allocate what a chunk claims to hold. These stop at the size of the chunk.
"""

import asyncio
import lzma
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numcodecs.blosc
import numcodecs.lz4
import pyarrow as pa
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, StorePath

_MOST_STORED_BYTES = 2**29
"""Read at once: a chunk, or a shard that is needed as a whole."""
_CHECKSUM_BYTES = 64


def opened_array(folder: Path, content: Mapping[str, Any], chunk_bytes: int) -> Any:
    """Open an array by its checked metadata; no chunk is unpacked to more than ``chunk_bytes``.

    A chunk whose file is absent cannot be read, unless the metadata say that absent means white.
    """
    most = chunk_bytes + _CHECKSUM_BYTES
    content = dict(content) | {"attributes": {}, "codecs": _bounded(content["codecs"], most)}
    store = _RegularFiles(folder, read_only=True)
    store.absent_is_white = content.get("fill_value") in {255, 65535}
    return zarr.Array(zarr.AsyncArray(content, StorePath(store)))  # type: ignore[call-overload]


def _bounded(codecs: list[Any], most: int) -> list[Any]:
    """Return the codecs with bounded ones for those that unpack, also inside shards."""
    bounded: list[Any] = []
    for codec in codecs:
        inner = codec.get("configuration", {})
        if codec["name"] == "sharding_indexed":
            inner = inner | {"codecs": _bounded(inner["codecs"], most)}
            bounded.append(codec | {"configuration": inner})
        elif codec["name"] in {"bytes", "transpose", "crc32c"}:
            bounded.append(codec)
        else:
            bounded.append(_BoundedCodec(codec["name"], most))
    return bounded


@dataclass(frozen=True)
class _BoundedCodec(BytesBytesCodec):
    """A compressor."""

    name: str
    most: int
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        content = await asyncio.to_thread(unpacked, chunk_bytes.to_bytes(), self.name, self.most)
        return chunk_spec.prototype.buffer.from_bytes(content)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError  # as in those of Zarr


class _RegularFiles(LocalStore):
    """A folder whose devices, pipes and oversized files are not read, and whose absent chunks are errors."""

    absent_is_white = False

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        try:
            status = (self.root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            if self.absent_is_white:
                return None
            raise ValueError(f"its file {key} is missing") from None
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{key} is not a file")
        match byte_range:
            case RangeByteRequest():
                size = byte_range.end - byte_range.start
            case SuffixByteRequest():
                size = byte_range.suffix
            case _:
                size = status.st_size
        if size > _MOST_STORED_BYTES:
            raise ValueError(f"{size:,} bytes of {key} are more than the {_MOST_STORED_BYTES:,} read at once")
        return await super().get(key, prototype, byte_range)


def unpacked(data: bytes, codec: str, most: int) -> bytes:
    """Unpack a chunk, or raise ValueError or OSError if it is corrupt or holds more than ``most`` bytes.

    >>> import zlib
    >>> unpacked(zlib.compress(b"pixels"), "zlib", 6)
    b'pixels'
    >>> unpacked(zlib.compress(bytes(10**6)), "zlib", 6)
    Traceback (most recent call last):
    ValueError: it unpacks to more than the 6 bytes of a chunk
    """
    if codec == "blosc":
        # The decoder believes both sizes in its header.
        size = int.from_bytes(data[4:8], "little")
        if len(data) < 16 or int.from_bytes(data[12:16], "little") > len(data):
            raise ValueError("it is cut off")
        content = b"" if size > most else numcodecs.blosc.decompress(data)
    elif codec == "lz4":
        size = int.from_bytes(data[:4], "little")
        content = b"" if size > most else numcodecs.lz4.decompress(data)
    else:
        if codec == "lzma":
            content = lzma.LZMADecompressor(memlimit=2**27).decompress(data, most + 1)
        else:
            name = {"zlib": "gzip"}.get(codec, codec)  # the decoder of gzip knows both
            with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
                content = stream.read(most + 1)
        size = len(content)
    if size > most:
        raise ValueError(f"it unpacks to more than the {most:,} bytes of a chunk")
    return content
