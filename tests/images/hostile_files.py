"""Hostile image files by name, and what every command does with a file."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image
from tests.images import slide_files

from sparseshot.images import Box, Grid, open_slide, tissue_mask

IMAGE = slide_files.tissue(403, 301)


def read_slide(path: Path) -> None:
    """Open a file and read what every command reads."""
    with open_slide(path, mpp=0.25) as slide:
        grid = Grid.over(slide, 0.5)
        slide.read(grid, Box(0, 0, 64, 64))
        slide.thumbnail(256)
        tissue_mask(slide)


def tiff(
    *directories: list[tuple[int, int, int, int]], following: list[int] | None = None, tail: bytes = b""
) -> bytes:
    """Lay out a TIFF of directories of (tag, type, count, value); ``following`` are the next offsets."""
    places = [8]
    for entries in directories:
        places.append(places[-1] + 2 + 12 * len(entries) + 4)
    following = following or [*places[1:-1], 0]
    data = struct.pack("<2sHI", b"II", 42, 8)
    for entries, after in zip(directories, following, strict=True):
        data += struct.pack("<H", len(entries))
        data += b"".join(struct.pack("<HHII", *entry) for entry in entries) + struct.pack("<I", after)
    return data + tail


def page(
    width: int, height: int, *, tile: int = 64, tiles: int = 1, at: int = 4000
) -> list[tuple[int, int, int, int]]:
    """Return the entries of a page of tiles of uncompressed grey."""
    return [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
        (277, 3, 1, 1), (322, 4, 1, tile), (323, 4, 1, tile), (324, 4, tiles, at),
        (325, 4, tiles, 4096 if tiles == 1 else at),
    ]  # fmt: skip


def png(width: int, height: int, data: bytes) -> bytes:
    """Return a PNG that claims a size."""
    chunks = b""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, content in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")):
        chunks += struct.pack(">I", len(content)) + kind + content
        chunks += struct.pack(">I", zlib.crc32(kind + content))
    return b"\x89PNG\r\n\x1a\n" + chunks


def ome(path: Path, description: str) -> None:
    tifffile.imwrite(path, IMAGE, tile=(64, 64), photometric="rgb", description=description, metadata=None)


def ome_xml(sizes: str, more: str = "") -> str:
    return (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="403" '
        f'SizeY="301" {sizes}>{more}'
        "</Pixels></Image></OME>"
    )


def _saved(**options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(IMAGE).save(file, **options)  # type: ignore[arg-type]
    return file.getvalue()


def _jpeg_of_size(width: int, height: int) -> bytes:
    data = bytearray(_saved(format="JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


BYTES: dict[str, Callable[[], bytes]] = {
    "points-to-itself.tif": lambda: tiff(page(64, 64, at=200), following=[8], tail=bytes(5000)),
    "in-a-circle.tif": lambda: tiff(page(64, 64), page(32, 32), following=[134, 8], tail=bytes(9000)),
    "circle-behind-a-good-page.tif": lambda: tiff(
        page(64, 64), page(32, 32), following=[134, 134], tail=bytes(9000)
    ),
    "many-directories.tif": lambda: tiff(*[page(64, 64)] * 6000, tail=bytes(9000)),
    "sub-directory-is-its-parent.tif": lambda: tiff([*page(64, 64), (330, 4, 1, 8)], tail=bytes(9000)),
    "sub-directories-without-end.tif": lambda: tiff(
        [*page(64, 64), (330, 4, 0x3FFFFFFF, 8)], tail=bytes(9000)
    ),
    "huge-image.tif": lambda: tiff(page(2**31, 2**31), tail=bytes(9000)),
    "huge-image-many-tiles.tif": lambda: tiff(page(2**20, 2**20, tiles=2**28), tail=bytes(9000)),
    "huge-tiles.tif": lambda: tiff(page(2**20, 2**20, tile=2**20), tail=bytes(9000)),
    "no-size.tif": lambda: tiff(page(0, 0), tail=bytes(9000)),
    "no-tile-size.tif": lambda: tiff(page(64, 64, tile=0), tail=bytes(9000)),
    "tags-of-gigabytes.tif": lambda: tiff([(270, 2, 2**31, 8), *page(64, 64)], tail=bytes(9000)),
    "too-many-entries.tif": lambda: struct.pack("<2sHIH", b"II", 42, 8, 65535) + bytes(70_000),
    "directory-outside.tif": lambda: struct.pack("<2sHI", b"II", 42, 2**31),
    "big-directory-outside.tif": lambda: struct.pack("<2sHHHQ", b"II", 43, 8, 0, 2**63),
    "odd-offsets.tif": lambda: struct.pack("<2sHHHQ", b"II", 43, 200, 9, 16) + bytes(300),
    "header-alone.tif": lambda: b"II*\0",
    "strip-image-of-terabytes.tif": lambda: tiff(
        [(256, 4, 1, 2**20), (257, 4, 1, 2**20), (258, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1, 8)]
    ),
    "huge.png": lambda: png(2**31 - 1, 2**31 - 1, zlib.compress(bytes(100))),
    "wide.png": lambda: png(2**30, 1, zlib.compress(bytes(100))),
    "bomb.png": lambda: png(30_000, 30_000, zlib.compress(bytes(30_000 * 90_001 // 40))),
    "no-data.png": lambda: png(100, 100, b""),
    "huge.jpg": lambda: _jpeg_of_size(65_500, 65_500),
    "no-size.jpg": lambda: _jpeg_of_size(0, 0),
    "cut.jpg": lambda: _saved(format="JPEG")[:900],
    "cut.tif": lambda: _saved(format="TIFF")[:900],
    "cut.jp2": lambda: _saved(format="JPEG2000")[:900],
    "cut.gif": lambda: _saved(format="GIF")[:900],
    "huge.bmp": lambda: (
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 1, 1, 0, 0)
    ),
    "empty.svs": lambda: b"",
    "zeros.svs": lambda: bytes(5000),
    "text.svs": lambda: b"not a slide\n" * 500,
    "dicom.dcm": lambda: bytes(128) + b"DICM" + b"\x02\x00\x10\x00UI\xff\xff" * 200,
    "mirax.mrxs": lambda: _saved(format="JPEG"),
}  # fmt: skip

WRITTEN: dict[str, Callable[[Path], object]] = {
    "planes-by-the-billion.ome.tif": lambda p: ome(p, ome_xml('SizeZ="1000000" SizeC="3" SizeT="1000000"')),
    "planes-by-the-thousand.ome.tif": lambda p: ome(p, ome_xml('SizeZ="1" SizeC="3" SizeT="1300"')),
    "negative-planes.ome.tif": lambda p: ome(p, ome_xml('SizeZ="-1" SizeC="0" SizeT="x"')),
    "many-tiffdata.ome.tif": lambda p: ome(
        p, ome_xml('SizeZ="1" SizeC="3" SizeT="1"', '<TiffData IFD="0" PlaneCount="999999999"/>' * 3)
    ),
    "other-file.ome.tif": lambda p: ome(
        p, ome_xml('SizeC="3" SizeT="2"', '<TiffData IFD="0"><UUID FileName="/dev/zero">a</UUID></TiffData>')
    ),
    "entities.ome.tif": lambda p: ome(
        p,
        '<?xml version="1.0"?><!DOCTYPE o [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
        + "]>" + ome_xml('SizeZ="1" SizeC="3" SizeT="1"', "&i;")[21:],
    ),
    "broken-xml.ome.tif": lambda p: ome(p, "<OME" * 1000),
    "int32.tif": lambda p: tifffile.imwrite(p, IMAGE[:, :, 0].astype(np.int32)),
    "float.tif": lambda p: tifffile.imwrite(p, IMAGE[:, :, 0].astype(np.float32), tile=(64, 64)),
    "complex.tif": lambda p: tifffile.imwrite(p, IMAGE[:, :, 0].astype(np.complex64)),
    "five-dimensions.tif": lambda p: tifffile.imwrite(
        p, np.zeros((2, 3, 4, 30, 40), np.uint8), photometric="minisblack"
    ),
}  # fmt: skip


def write_hostile_files(folder: Path) -> list[Path]:
    """Write all of them."""
    for name, content in BYTES.items():
        (folder / name).write_bytes(content())
    for name, write in WRITTEN.items():
        write(folder / name)
    return [folder / name for name in (*BYTES, *WRITTEN)]
