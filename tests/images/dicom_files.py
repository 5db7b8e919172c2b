"""DICOM slides as scanners write them: one file for each level, for the label and for the overview."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.images.slide_files import TILE, tiles

ROOT = "1.2.826.0.1.3680043.8.498."
WHOLE_SLIDE = "1.2.840.10008.5.1.4.1.1.77.1.6"
EXPLICIT_LITTLE_ENDIAN = "1.2.840.10008.1.2.1"

Value = str | int | bytes


def write_dicom(
    folder: Path, pixels: NDArray[np.uint8], *, mpp: float = 0.25, levels: int = 3, series: int = 1
) -> list[Path]:
    """Write a series and return its files: the levels from the finest, the label, the overview.

    A level takes every second pixel of the one before. By name the label is first and level 0 last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for level in range(levels):
        kind = "ORIGINAL\\PRIMARY\\VOLUME\\NONE" if level == 0 else "DERIVED\\PRIMARY\\VOLUME\\RESAMPLED"
        part = pixels[:: 2**level, :: 2**level]
        content = dicom(part, list(tiles(part)), kind, mpp=mpp * 2**level, series=series, number=9 - level)
        files.append((9 - level, content))
    picture = np.full((TILE, TILE, 3), 90, np.uint8)
    for number, name in enumerate(("LABEL", "OVERVIEW")):
        kind = f"ORIGINAL\\PRIMARY\\{name}\\NONE"
        files.append((number, dicom(picture, [picture], kind, mpp=50, series=series, number=number)))
    paths = [folder / f"{series}-{number}.dcm" for number, _ in files]
    for path, (_, content) in zip(paths, files, strict=True):
        path.write_bytes(content)
    return paths


def dicom(
    pixels: NDArray[np.uint8],
    frames: Sequence[NDArray[np.uint8]],
    kind: str,
    *,
    mpp: float,
    series: int,
    number: int,
) -> bytes:
    """Return an uncompressed whole-slide image of one level."""
    rows, columns, _ = pixels.shape
    instance = f"{ROOT}{series}.{number}"
    meta = b"".join(
        (
            _element(0x0002_0002, "UI", WHOLE_SLIDE),
            _element(0x0002_0003, "UI", instance),
            _element(0x0002_0010, "UI", EXPLICIT_LITTLE_ENDIAN),
        )
    )
    measures = _element(0x0028_0030, "DS", f"{mpp / 1000:.8f}\\{mpp / 1000:.8f}")
    shared = _element(0x0028_9110, "SQ", _item(measures))
    reference = _element(0x0020_000E, "UI", f"{ROOT}99")  # of another series, which readers must not take
    elements: list[tuple[int, str, Value]] = [
        (0x0008_0008, "CS", kind),
        (0x0008_0016, "UI", WHOLE_SLIDE),
        (0x0008_0018, "UI", instance),
        (0x0008_0060, "CS", "SM"),
        (0x0008_1115, "SQ", _item(reference)),
        (0x0020_000D, "UI", f"{ROOT}1"),
        (0x0020_000E, "UI", f"{ROOT}2.{series}"),
        (0x0020_9311, "CS", "TILED_FULL"),
        (0x0028_0002, "US", 3),
        (0x0028_0004, "CS", "RGB"),
        (0x0028_0006, "US", 0),
        (0x0028_0008, "IS", str(len(frames))),
        (0x0028_0010, "US", TILE),
        (0x0028_0011, "US", TILE),
        (0x0028_0100, "US", 8),
        (0x0028_0101, "US", 8),
        (0x0028_0102, "US", 7),
        (0x0028_0103, "US", 0),
        (0x0048_0006, "UL", columns),
        (0x0048_0007, "UL", rows),
        (0x0048_0302, "UL", 1),
        (0x0048_0303, "UL", 1),
        (0x5200_9229, "SQ", _item(shared)),
        (0x7FE0_0010, "OB", b"".join(frame.tobytes() for frame in frames)),
    ]
    length = _element(0x0002_0000, "UL", len(meta))
    return bytes(128) + b"DICM" + length + meta + b"".join(_element(*each) for each in elements)


def _element(tag: int, kind: str, value: Value) -> bytes:
    if isinstance(value, int):
        value = struct.pack("<H" if kind == "US" else "<I", value)
    elif isinstance(value, str):
        value = value.encode()
        value += (b"\0" if kind == "UI" else b" ") * (len(value) % 2)
    start = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind.encode())
    return start + struct.pack(*(("<HI", 0) if kind in ("OB", "SQ") else ("<H",)), len(value)) + value


def _item(content: bytes) -> bytes:
    return struct.pack("<HHI", 0xFFFE, 0xE000, len(content)) + content
