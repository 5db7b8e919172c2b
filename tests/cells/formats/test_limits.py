"""Hostile files read in a child process: no signal, no traceback, and no write past an array."""

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from tests.cells.formats.test_hostile import whole_table

from sparseshot.cells import write_cells
from sparseshot.errors import SparseshotWarning

READ = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from sparseshot.cells import read_cells
from sparseshot.errors import SparseshotError
warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    try:
        print(len(read_cells(path)))
    except SparseshotError as error:
        print(repr(str(error)[:300]))
"""

POINT = '{"geometry":{"type":"Point","coordinates":[1,2]},"properties":{"measurements":{%s}}}'
DENSE = {
    "features": '{"features":[' + "{}" * 900_000 + "]}",
    "measurements": '{"features":[' + POINT % ",".join(f'"{k}":1' for k in range(200_000)) + "]}",
    "coordinates": '{"features":[{"geometry":{"type":"Polygon","coordinates":[' + "[]," * 200_000 + "[]]}}]}",
    "brackets": '{"features":[{"coordinates":[[[[' + "]" * 300_000,
    "closed": '{"features":[' + "{]" * 300_000,
    "positions": '{"features":[{"geometry":{"type":"MultiPoint","coordinates":['
    + ",".join(["[1,2]"] * 300_000)
    + "]}}]}",
    "numbers": '{"features":[{"geometry":{"type":"Point","coordinates":[' + "1," * 500_000 + "1]}}]}",
    "shapes": '{"features":[{"a":[' + ",".join(['{"coordinates":[]}'] * 100_000) + "]}]}",
    "quotes": '{"features":[{"' + '\\"' * 500_000,
}
EXPECTED = {"coordinates": "0", "positions": "300000", "numbers": "1"}


def read_in_child(*paths: Path, bounds_check: bool) -> list[str]:
    """Read files in a process of limited memory and return a line for each: a count, or an error."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1" if bounds_check else "0"}
    if bounds_check:
        environment["NUMBA_CACHE_DIR"] = str(paths[0].parent / "numba")
    run = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


@pytest.mark.parametrize("bounds_check", [False, True])
def test_dense_geojson_is_read_or_refused(tmp_path: Path, bounds_check: bool) -> None:
    paths = [tmp_path / f"{name}.geojson" for name in DENSE]
    for path, text in zip(paths, DENSE.values(), strict=True):
        path.write_text(text)
    lines = dict(zip(DENSE, read_in_child(*paths, bounds_check=bounds_check), strict=True))
    for name, line in lines.items():
        assert line == EXPECTED.get(name, line)
        assert line.isdigit() == (name in EXPECTED), line


def test_damaged_files_stay_within_bounds(tmp_path: Path) -> None:
    """Read mutations of every format that compiled code takes part in, with numba's bounds check."""
    dice = random.Random(0)
    paths = []
    for ending in ("geojson", "csv", "png", "npy", "coco.json", "xml", "parquet"):
        whole_path = tmp_path / f"whole.{ending}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparseshotWarning)
            write_cells(whole_table(), whole_path)
        whole = whole_path.read_bytes()
        for number in range(25):
            data = bytearray(whole)
            for _ in range(dice.choice([1, 2, 5])):
                place = dice.randrange(len(data))
                token = dice.choice([b"[", b"{", b'"', b"]", b"}", b",", b"9" * 20, b"1e308", b"\\", b"\0"])
                data[place : place + dice.randrange(3)] = token
            paths.append(tmp_path / f"{number}.{ending}")
            paths[-1].write_bytes(data)
    assert len(read_in_child(*paths, bounds_check=True)) == len(paths)
