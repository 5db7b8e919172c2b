"""``python -m benchmarks.fuzz --mutations 10000 --seed 0``: damaged files against every reader.

Valid files of every format are damaged at random, and each is read in a child process of its own with a limit
of 4 GB and 20 s. Counted are what was read, errors of ours, other exceptions, signals and timeouts. The same
seed makes the same files.
"""

import argparse
import os
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import shapely
from PIL import Image
from tests.images import slide_files
from tests.images.hostile_files import read_slide
from tests.limited import outcome

from benchmarks.timing import print_table
from sparseshot.cells import Cells, read_cells, write_cells
from sparseshot.cells.formats.registry import FORMATS

KINDS = ("ok", "error", "unforeseen", "memory", "signal", "timeout")
CELL_FILES = (
    "qupath.geojson", "packed.geojson.gz", "archive.zip", "cells.parquet", "cells.coco.json",
    "imagescope.xml", "cells.asap.xml", "points.csv", "points.tsv", "mask.png", "mask.tif", "mask.npy",
    "hovernet.mat", "crchisto_detection.mat",
)  # fmt: skip
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
TOKENS = (
    b"1e999", b"-1", b"NaN", b"null", b"99999999999999999999", b"[]", b"{}", b'"', b"<", b"&", b"\0", b"\xff",
    b",", b"-1e308", b"1" * 400,
)  # fmt: skip
VALUES = (
    b"null", b"true", b"{}", b"[]", b"[[[[1]]]]", b"[1, null]", b"-1", b"0", b"1e30", b"1e400", b"-0.0",
    b"18446744073709551616", b"9" * 400, b'""', b'"x"', b'"NaN"', b'"-1"', b'"1e30"', b'"[red]"',
    b'"#3ab7dd"', b'"\\u0000"', b'"&#1;"', b'"' + b"y" * 300 + b'"', b"nan", b"=1+1",
)  # fmt: skip


def main() -> None:
    """Fuzz, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=1000, help="number of damaged files")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--keep", type=Path, help="folder for files that end in anything but ok and error")
    options = parser.parse_args()
    start = time.perf_counter()
    counts: Counter[tuple[str, str]] = Counter()
    places: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        files = _valid_files(Path(name), options.only)
        _load_readers(files)
        for path, read in files:
            if (text := outcome(read, path)) != "ok":
                raise RuntimeError(f"the valid file {path.name} is not read: {text}")
        for number in range(options.mutations):
            source, kind, text = _one(files, options.seed + number, Path(name))
            counts[source, kind] += 1
            if kind in {"ok", "error"}:
                continue
            places[source, text.replace(name, "")[:140]] += 1
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                damaged = Path(name) / "damaged" / source
                (options.keep / f"{options.seed + number}-{source}").write_bytes(damaged.read_bytes())
    names = [path.name for path, _ in files]
    rows = [[name, *(counts[name, kind] for kind in KINDS)] for name in names]
    totals = [sum(counts[name, kind] for name in names) for kind in KINDS]
    seconds = time.perf_counter() - start
    print(f"{options.mutations:,} damaged files from seed {options.seed}, {seconds:.0f} s\n")
    print_table(["", *KINDS], [*rows, ["all", *totals]])
    if places:
        print()
        print_table(
            ["", "outcome", "times"], [[name, text, times] for (name, text), times in places.most_common(50)]
        )


Valid = list[tuple[Path, Callable[[Path], object]]]


def _one(files: Valid, seed: int, folder: Path) -> tuple[str, str, str]:
    """Damage one file and read it; return its name, the kind of outcome, and the outcome."""
    random = np.random.default_rng(seed)
    path, read = files[int(random.integers(len(files)))]
    other, _ = files[int(random.integers(len(files)))]
    damaged = folder / "damaged" / path.name
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(mutated(path.read_bytes(), other.read_bytes(), random))
    text = outcome(read, damaged)
    kind = text.partition(":")[0].partition(" ")[0]
    return path.name, "memory" if text.startswith("unforeseen: MemoryError") else kind, text


def mutated(data: bytes, other: bytes, random: np.random.Generator) -> bytes:
    """Return data with some random damages, most often one; of a text, most often only other values."""
    if b"\0" not in data[:1000] and data.isascii() and random.random() < 0.6:
        return _with_other_values(data, random)
    content = bytearray(data)
    for _ in range(min(8, int(random.geometric(0.5)))):
        size = len(content)
        at = int(random.integers(size + 1))
        if random.random() < 0.4:  # headers and directories are short, and at the ends
            at = min(size, at % 1024)
            at = size - at if random.random() < 0.5 else at
        end = min(size, at + int(2 ** random.uniform(0, 8)))
        width = int(random.choice([1, 2, 4, 8]))
        match int(random.integers(10)):
            case 0 if at < size:
                content[at] ^= 1 << int(random.integers(8))
            case 1:
                value = EXTREMES[int(random.integers(len(EXTREMES)))] % 256**width
                order = "little" if random.random() < 0.5 else "big"
                content[at : at + width] = value.to_bytes(width, order)
            case 2:
                del content[at:end]
            case 3:
                content[at:at] = content[at:end] * int(random.integers(1, 50))
            case 4:
                content[at:at] = random.bytes(end - at)
            case 5 if random.random() < 0.3:
                del content[at:]
            case 6:
                begin = int(random.integers(len(other) + 1))
                content[at:end] = other[begin : begin + end - at]
            case 7:
                content[at:at] = TOKENS[int(random.integers(len(TOKENS)))]
            case _:
                content[at : at + width] = random.bytes(width)
    return bytes(content)


def _with_other_values(text: bytes, random: np.random.Generator) -> bytes:
    """Replace some numbers and strings, so that the file stays well-formed."""
    for _ in range(min(4, int(random.geometric(0.6)))):
        found = list(re.finditer(rb'"[^"<>]*"|-?\d+\.?\d*(?:[eE][+-]?\d+)?|true|false|null', text))
        start, end = found[int(random.integers(len(found)))].span()
        text = text[:start] + VALUES[int(random.integers(len(VALUES)))] + text[end:]
    return text


def _valid_files(folder: Path, only: str) -> Valid:
    """Write valid files of every format, in a child so that no library here has threads when it forks."""
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore")
        _write_cells(folder)
        _write_images(folder / "images")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the valid files could not be written")
    images: Valid = [(path, read_slide) for path in sorted((folder / "images").iterdir())]
    files: Valid = [*((folder / name, read_cells) for name in CELL_FILES), *images]
    return [(path, read) for path, read in files if only in path.name]


def _load_readers(files: Valid) -> None:
    """Import the readers and load compiled functions here, so that not every child has to."""
    for known in FORMATS.values():
        import_module(f"sparseshot.cells.formats.{known.reader}")
    for path, read in files:
        if read is read_slide or path.name.startswith("mask"):  # the others would start threads
            read(path)


def _write_cells(folder: Path) -> None:
    random = np.random.default_rng(0)
    xy = random.uniform(10, 190, (12, 2))
    outline = shapely.buffer(shapely.points(xy), 4, quad_segs=2)
    cells = Cells(
        xy,
        classes=("tumour", "stroma"),
        label=random.integers(0, 2, 12),
        score=random.random(12),
        outline=outline,
        mpp=0.25,
        measurements={"Area": random.random(12)},
    )
    for name in CELL_FILES:
        write_cells(cells, folder / name)


def _write_images(folder: Path) -> None:
    folder.mkdir()
    image = slide_files.tissue(120, 90)
    for suffix in (".png", ".jpg", ".bmp", ".tif", ".jp2", ".webp", ".gif"):
        Image.fromarray(image).save(folder / f"image{suffix}")
    Image.fromarray(image).quantize().save(folder / "palette.png")
    for codec in ("none", "deflate", "jpeg-rgb", "jpeg2000"):
        slide_files.write_pyramid(folder / f"{codec}.tif", image, codec=codec, levels=(1, 2))
    slide_files.write_pyramid(folder / "big.tif", image, bigtiff=True, levels=(1, 2))
    slide_files.write_aperio(folder / "aperio.svs", image)
    for axes in ("YXS", "SYX", "CYX"):
        slide_files.write_ome(folder / f"{axes}.ome.tif", image, axes=axes, levels=(1, 2))
    slide_files.write_ome(folder / "strips.ome.tif", image, axes="CYX", levels=(1,), tiled=False)


if __name__ == "__main__":
    main()
