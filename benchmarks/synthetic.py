"""Synthetic tissue: speed of regions and cells in one thread, against filling pixels with noise."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.timing import print_table, seconds_in_turns
from sparseshot.datasets.synthetic import SyntheticTissue, write_pyramid
from sparseshot.images import read_region

SIDE_PX = 1024
TISSUE = SyntheticTissue(seed=1, size_px=(100_000, 100_000), tissue_fraction=1.0)
SLIDE = SyntheticTissue(seed=1, size_px=(100_000, 100_000))


def regions() -> None:
    generator = np.random.default_rng(0)
    candidates: dict[str, Callable[[], object]] = {
        "numpy noise": partial(generator.integers, 0, 256, (SIDE_PX, SIDE_PX, 3), np.uint8),
        "glass, 0.25 µm": partial(read_region, SLIDE, 0, 0, SIDE_PX, SIDE_PX),
    }
    for mpp in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        candidates[f"tissue, {mpp} µm"] = partial(
            read_region, TISSUE, 40_000, 40_000, SIDE_PX, SIDE_PX, mpp=mpp
        )
    seconds = seconds_in_turns(candidates, rounds=7)
    print_table(
        ["region of 1024²", "Mpx/s", "times the noise"],
        [[name, SIDE_PX**2 / time / 1e6, time / seconds["numpy noise"]] for name, time in seconds.items()],
    )


def cells() -> None:
    rows = []
    for side in (20_000, 50_000, 100_000):
        slide = SyntheticTissue(seed=1, size_px=(side, side))
        count = len(slide.cells())
        seconds = seconds_in_turns({"cells": slide.cells}, rounds=1)["cells"]
        rows.append([f"{side:,}²", f"{count:,}", seconds, count / seconds / 1e6])
    print_table(["all cells of", "cells", "s", "million cells/s"], rows)


def pyramid() -> None:
    slide = SyntheticTissue(seed=1, size_px=(8192, 8192))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slide.tif"
        seconds = seconds_in_turns({"write": partial(write_pyramid, slide, path, threads=1)}, rounds=1)
        size = path.stat().st_size
    print_table(
        ["pyramid of", "s", "Mpx/s of level 0", "MB"],
        [["8,192²", seconds["write"], 8192**2 / seconds["write"] / 1e6, size / 1e6]],
    )


def main() -> None:
    for table in (regions, cells, pyramid):
        table()
        print()
