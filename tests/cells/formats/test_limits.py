"""Hostile files read in a child process: no signal, no traceback, and no write past an array."""

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests.cells.formats.test_hostile import whole_table

from sparseshot.cells import read_cells, write_cells
from sparseshot.errors import FormatError, SparseshotWarning

READ = """
import os, resource, sys, warnings
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
sys.stdout.flush()
os._exit(0)  # threads of libraries may abort a process that ends with little memory
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


def dense_files(folder: Path) -> list[Path]:
    paths = [folder / f"{name}.geojson" for name in DENSE]
    for path, text in zip(paths, DENSE.values(), strict=True):
        path.write_text(text)
    return paths


def check_dense(lines: list[str]) -> None:
    for name, line in zip(DENSE, lines, strict=True):
        assert line == EXPECTED.get(name, line)
        assert line.isdigit() == (name in EXPECTED), line


def test_dense_geojson_is_read_or_refused(tmp_path: Path) -> None:
    check_dense(read_in_child(*dense_files(tmp_path), bounds_check=False))


def test_dense_and_damaged_files_stay_within_bounds(tmp_path: Path) -> None:
    """Read mutations of every format that compiled code takes part in, with numba's bounds check."""
    dense = dense_files(tmp_path)
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
    lines = read_in_child(*dense, *paths, bounds_check=True)
    check_dense(lines[: len(dense)])
    assert len(lines) == len(dense) + len(paths)


def repeating(value: object, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def parquet_of(count: int, **columns: pa.Array) -> pa.Table:
    """Return a table of points with further columns."""
    places = pa.array(np.zeros(count))
    return pa.table({"x": places, "y": places, **columns})


def parquet_of_shapes(shape: shapely.Geometry, count: int) -> pa.Table:
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    table = pa.table({"geometry": pa.array([shapely.to_wkb(shape)]).take(pa.array([0] * count))})
    return table.replace_schema_metadata({b"geo": orjson.dumps(geo)})


ROUND = shapely.Point(0, 0)
EXPANDING = {
    "rows": parquet_of(5_000_000),
    "columns": parquet_of(10_000, **{f"m{k}": pa.array(np.zeros(10_000)) for k in range(1000)}),
    **{
        name: parquet_of(3000, **{name: repeating("a" * 2**20, 3000)})
        for name in ("name", "id", "class", "kind")
    },
    "geometry": parquet_of_shapes(ROUND.buffer(9, quad_segs=2**9), 4000),
    "plain text": parquet_of(100, name=pa.array(["a" * 2**20] * 100)),
    "wide bytes": parquet_of(3000, id=pa.array([b"a" * 2**15] * 3000, pa.binary(2**15))),
}


@pytest.mark.parametrize("name", EXPANDING)
def test_parquet_that_expands_is_refused(tmp_path: Path, name: str) -> None:
    has_dictionary = name != "plain text"
    pq.write_table(
        EXPANDING[name],
        tmp_path / "a.parquet",
        compression="zstd",
        use_dictionary=has_dictionary,
        store_schema=name == "geometry",
    )
    (line,) = read_in_child(tmp_path / "a.parquet", bounds_check=False)
    assert "unpacks to more than 250 times its size" in line


def test_parquet_of_shared_beginnings_is_refused(tmp_path: Path) -> None:
    table = parquet_of(3000, name=pa.array(["a" * 2**10] * 3000))
    encoding = {"name": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encoding)
    with pytest.raises(FormatError, match="'name' is encoded as DELTA_BYTE_ARRAY"):
        read_cells(tmp_path / "a.parquet")


def test_parquet_with_dictionaries_is_read(tmp_path: Path) -> None:
    pq.write_table(parquet_of_shapes(ROUND.buffer(9), 300), tmp_path / "shapes.parquet")
    cells = read_cells(tmp_path / "shapes.parquet")
    assert cells.outline is not None
    assert shapely.equals(cells.outline, ROUND.buffer(9)).all()
    texts = {name: repeating(name, 300) for name in ("name", "class", "id")}
    pq.write_table(parquet_of(300, **texts), tmp_path / "points.parquet", store_schema=False)
    with pytest.warns(SparseshotWarning, match="repeated ids"):
        cells = read_cells(tmp_path / "points.parquet")
    assert cells.name is not None
    assert (set(cells.name), cells.classes) == ({"name"}, ("class",))
