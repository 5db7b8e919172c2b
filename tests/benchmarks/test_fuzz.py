"""The harness of damaged files runs as its documentation says."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_damaged_files_are_read_or_refused() -> None:
    command = [sys.executable, "-m", "benchmarks.fuzz", "--mutations", "40", "--only", "studio"]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    total = next(line for line in ran.stdout.splitlines() if line.startswith("| all"))
    ok, error, *others = [int(cell) for cell in total.split("|")[2:9]]
    assert (ok + error, set(others)) == (40, {0})
