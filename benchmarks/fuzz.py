"""``python -m benchmarks.fuzz --mutations 10000 --seed 0``: damaged files against every reader.

Valid files of every kind are damaged at random and read in a child process with limits of 4 GB and 20 s a
file. Counted are what was read, errors of ours, other exceptions, signals and timeouts, and files of a few
kilobytes that are refused only because memory runs out. What ends in anything but the first two is
repeated in a fresh process. The same seed makes the same files.
"""

import argparse
import re
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
from tests.images.hostile_files import read_slide
from tests.limited import each_outcome, outcome

from benchmarks.timing import print_table
from benchmarks.valid_files import Valid, valid_files
from sparseshot.cells.formats.registry import FORMATS

KINDS = ("ok", "error", "unforeseen", "memory", "signal", "exit", "timeout")
A_BATCH = 1000  # files after which the child is replaced, so that what it holds does not add up
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
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--keep", type=Path, help="folder for files that end in anything but ok and error")
    options = parser.parse_args()
    start = time.perf_counter()
    counts: Counter[tuple[str, str]] = Counter()
    places: Counter[tuple[str, str]] = Counter()
    slowest: defaultdict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = valid_files(folder, options.only)
        _load_readers(files)
        for path, read in files:
            if (text := outcome(read, path)) != "ok":
                raise RuntimeError(f"the valid file {path.name} is not read: {text}")
        names = [str(path.relative_to(folder)) for path, _ in files]
        case, again = (_case(files, folder, each) for each in ("damaged", "again"))
        seeds = range(options.seed, options.seed + options.mutations)
        for batch in (seeds[at : at + A_BATCH] for at in range(0, len(seeds), A_BATCH)):
            before = time.perf_counter()
            for seed, text in zip(batch, each_outcome(case, batch), strict=True):
                source = names[_chosen(seed, len(files))]
                now = time.perf_counter()
                slowest[source], before = max(slowest[source], now - before), now
                kind = _kind(text)
                alone = text if kind in {"ok", "error"} else outcome(again, seed)
                if kind == "timeout":  # the machine may have been busy
                    text, kind = alone, _kind(alone)  # noqa: PLW2901
                counts[source, kind] += 1
                if kind in {"ok", "error"}:
                    continue
                note = "" if _kind(alone) == kind else f" (alone: {alone})"
                places[source, (text + note).replace(name, "")[:200]] += 1
                print(f"{seed} {source}: {text}{note}", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(folder / "again" / source, options.keep / f"{seed}-{Path(source).name}")
                before = time.perf_counter()
    rows = [[name, *(counts[name, kind] for kind in KINDS), f"{slowest[name]:.2f}"] for name in names]
    totals = [sum(counts[name, kind] for name in names) for kind in KINDS]
    seconds = time.perf_counter() - start
    print(f"{options.mutations:,} damaged files from seed {options.seed}, {seconds:.0f} s\n")
    print_table(["", *KINDS, "slowest, s"], [*rows, ["all", *totals, f"{max(slowest.values()):.2f}"]])
    if places:
        print()
        print_table(
            ["", "outcome", "times"], [[name, text, times] for (name, text), times in places.most_common(50)]
        )


def _kind(text: str) -> str:
    if text.startswith("unforeseen: MemoryError") or "needs more memory" in text:
        return "memory"
    return text.partition(":")[0].partition(" ")[0]


def _chosen(seed: int, count: int) -> int:
    """Return which file a seed damages."""
    return int(np.random.default_rng(seed).integers(count))


def _case(files: Valid, folder: Path, copies: str) -> Callable[[int], object]:
    """Return the action that damages the file of a seed and reads it, in a folder of its own."""
    contents = [path.read_bytes() for path, _ in files]

    def case(seed: int) -> object:
        path, read = files[number := _chosen(seed, len(files))]
        random = np.random.default_rng((seed, 1))
        damaged = folder / copies / path.relative_to(folder)
        damaged.parent.mkdir(parents=True, exist_ok=True)
        damaged.write_bytes(mutated(contents[number], contents[int(random.integers(len(files)))], random))
        return read(damaged)

    return case


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


def _load_readers(files: Valid) -> None:
    """Import the readers and load compiled functions here, so that not every child has to."""
    for reader in {known.reader for known in FORMATS.values()} - {""}:  # some formats are only written
        import_module(f"sparseshot.cells.formats.{reader}")
    for path, read in files:
        if read is read_slide:  # the others would start threads
            read(path)


if __name__ == "__main__":
    main()
