"""Small slides of the layouts that scanners and converters write."""

import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from sparseshot.images.opening import OpenSlideFile

TILE = 64
APERIO = "Aperio Image Library v12\n{w}x{h} [0,0 {w}x{h}] (64x64) JPEG/RGB Q=90|AppMag = 40|MPP = {mpp}"

Pixels = NDArray[np.uint8]


def tissue(width: int, height: int, *, seed: int = 0) -> Pixels:
    """Make noise that is smooth enough for JPEG: every value occurs, neighbours are alike."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    smooth: Pixels = np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    return smooth


def reduced(image: Pixels, n: int) -> Pixels:
    """Make a level as scanners do: means of n × n pixels, what does not fill one is dropped."""
    h, w = image.shape[0] // n, image.shape[1] // n
    blocks: NDArray[np.float64] = image[: h * n, : w * n].reshape(h, n, w, n, 3).mean(axis=(1, 3))
    return (blocks + 0.5).astype(np.uint8)


def tiles(image: Pixels) -> Iterator[Pixels]:
    h, w = image.shape[:2]
    padded = np.pad(image, ((0, -h % TILE), (0, -w % TILE), (0, 0)), mode="edge")
    for y in range(0, h, TILE):
        for x in range(0, w, TILE):
            yield padded[y : y + TILE, x : x + TILE]


def jpeg(tile: Pixels, *, rgb: bool) -> bytes:
    out = io.BytesIO()
    Image.fromarray(tile).save(out, "JPEG", quality=90, keep_rgb=rgb, subsampling=0 if rgb else 2)
    return out.getvalue()


def jpeg2000(tile: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(tile).save(out, "JPEG2000", no_jp2=True)
    return out.getvalue()


def lzw(tile: Pixels) -> bytes:
    """Pack without packing: clear the table (256) before codes grow past nine bits, end with 257."""
    data = tile.tobytes()
    codes = [code for i in range(0, len(data), 200) for code in (256, *data[i : i + 200])]
    bits = "".join(f"{code:09b}" for code in [*codes, 257])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


PACKERS: dict[str, tuple[Callable[[Pixels], bytes], int, int]] = {
    "jpeg-rgb": (partial(jpeg, rgb=True), 7, 2),
    "jpeg-ycbcr": (partial(jpeg, rgb=False), 7, 6),
    "jpeg2000": (jpeg2000, 33005, 2),
    "lzw": (lzw, 5, 2),
}
"""How a tile is packed, and the numbers by which a TIFF names the codec and the meaning of the colours."""


def write_level(writer: tifffile.TiffWriter, image: Pixels, *, codec: str, **options: Any) -> None:
    options = {"tile": (TILE, TILE), "photometric": "rgb", **options}
    if codec in PACKERS:
        packed = map(PACKERS[codec][0], tiles(image))
        writer.write(packed, shape=image.shape, dtype=np.uint8, compression="zlib", **options)
    elif codec == "none":
        writer.write(image, **options)
    else:
        writer.write(image, compression="zlib", predictor=codec == "deflate-predicted", **options)


def declare(path: Path, codec: str) -> Path:
    """Say what the tiles really hold: alone tifffile packs neither JPEG nor LZW, but takes any bytes."""
    if codec in PACKERS:
        _, compression, colors = PACKERS[codec]
        with tifffile.TiffFile(path, mode="r+") as file:
            pages = [*file.pages, *(file.pages.first.pages or ())]
            for page in pages:
                assert isinstance(page, tifffile.TiffPage)
                page.tags["Compression"].overwrite(compression)
                page.tags["PhotometricInterpretation"].overwrite(colors)
    return path


def write_pyramid(
    path: Path,
    image: Pixels,
    *,
    codec: str = "none",
    levels: Sequence[int] = (1, 4, 16),
    mpp: float | None = 0.25,
    description: str | None = None,
    bigtiff: bool = False,
) -> Path:
    """Write a pyramidal TIFF, each level a page of its own; with Aperio's description, an SVS."""
    resolution = {} if mpp is None else {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"}
    with tifffile.TiffWriter(path, bigtiff=bigtiff) as writer:
        for n in levels:
            options = {"subfiletype": 0 if n == 1 or description else 1, "description": description}
            write_level(
                writer, reduced(image, n), codec=codec, **options, **resolution, metadata=None, software=False
            )
    return declare(path, codec)


def write_aperio(path: Path, image: Pixels, *, mpp: float = 0.25, codec: str = "jpeg-rgb") -> Path:
    text = APERIO.format(w=image.shape[1], h=image.shape[0], mpp=mpp)
    return write_pyramid(path, image, codec=codec, mpp=None, description=text)


def write_ome(
    path: Path,
    image: Pixels,
    *,
    axes: str = "YXS",
    mpp: float = 0.25,
    codec: str = "none",
    levels: Sequence[int] = (1, 2, 4),
    tiled: bool = True,
) -> Path:
    """Write an OME-TIFF whose coarser levels are SubIFDs of the first."""
    metadata = {"axes": axes, "PhysicalSizeX": mpp * 1000, "PhysicalSizeXUnit": "nm"}
    metadata |= {"PhysicalSizeY": mpp * 1000, "PhysicalSizeYUnit": "nm"}
    with tifffile.TiffWriter(path, ome=True) as writer:
        for n in levels:
            first = {"subifds": len(levels) - 1, "metadata": metadata}
            options: dict[str, Any] = {"subfiletype": 1} if n > 1 else first
            level = reduced(image, n)
            if axes == "YXS":
                write_level(writer, level, codec=codec, **options)
                continue
            planes = np.moveaxis(level, 2, 0)
            options |= {"photometric": "minisblack"} if axes == "CYX" else {"planarconfig": "separate"}
            options = {"photometric": "rgb", "tile": (TILE, TILE) if tiled else None, **options}
            writer.write(np.ascontiguousarray(planes), **options)
    return declare(path, codec)


def tile_places(path: Path, *, level: int = 0) -> tuple[list[int], list[int], int]:
    """Return offsets and byte counts of the tiles of a level, and how many there are across."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        assert isinstance(page, tifffile.TiffPage)
        return list(page.dataoffsets), list(page.databytecounts), math.ceil(page.imagewidth / page.tilewidth)


def corrupt_tile(path: Path, *, column: int, row: int) -> None:
    """Overwrite the middle half of a tile of level 0."""
    offsets, counts, across = tile_places(path)
    index = row * across + column
    start, count = offsets[index] + counts[index] // 4, counts[index] // 2
    data = bytearray(path.read_bytes())
    data[start : start + count] = np.random.default_rng(5).bytes(count)
    path.write_bytes(data)


def by_openslide(path: Path, mpp: float = 0.25) -> OpenSlideFile:
    """Open a file by OpenSlide, although another reader would be chosen."""
    slide = OpenSlideFile(path)
    slide.mpp = mpp
    return slide
