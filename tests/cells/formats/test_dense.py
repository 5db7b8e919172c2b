"""GeoJSON so dense that a reader with too little room would write past its arrays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        print(str(error)[:300].replace(path, ""))
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
