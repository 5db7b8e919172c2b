"""Ctrl-C: one line, exit code 130, nothing half-written, and the same command resumes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.experiments.tiny_data import TINY_SETTINGS, own_images
from tests.forked import process
from tests.images import slide_files
from tests.prediction.networks import random_detector, save

from sparseshot.cli import main
from sparseshot.datasets.synthetic import SyntheticTissue
from sparseshot.images import read_region
from sparseshot.prediction import read_prediction


def interrupt(arguments: list[str], *, when: Path, folder: Path) -> tuple[int | None, str]:
    """Run a command, send SIGINT as soon as ``when`` exists; return the exit code and standard error."""
    errors = folder / "errors.txt"
    running = process(listen, arguments, folder, errors)
    try:
        until = time.monotonic() + 120
        while not when.exists():
            assert time.monotonic() < until
            assert running.is_alive(), errors.read_text()
            time.sleep(0.01)
        assert running.pid is not None
        os.kill(running.pid, signal.SIGINT)
        running.join(60)
    finally:
        running.kill()
    return running.exitcode, errors.read_text()


def listen(arguments: list[str], folder: Path, errors: Path) -> None:
    """Run a command that Ctrl-C stops, even if the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    sys.exit(main(arguments))


def half_written(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".part" in path.name]


@pytest.mark.slow
def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_images(tmp_path)
    settings = TINY_SETTINGS.replace("[settings]", "").replace("steps = 8", "steps = 3000")
    (tmp_path / "tiny.toml").write_text(settings)
    arguments = ["train", "--pairs", "train.csv", "--mpp", "0.25", "--config", "tiny.toml", "--out", "run"]
    code, said = interrupt(arguments, when=tmp_path / "run" / "last.pt", folder=tmp_path)
    assert code == 130
    assert said.splitlines()[-1] == "stopped; the same command resumes"
    assert "Traceback" not in said
    assert half_written(tmp_path) == []
    assert not (tmp_path / "run" / "model.pt").exists()
    # The tests of the loop resume it; here it is enough that the steps were kept.
    from sparseshot.models.checkpoint import Checkpoint

    assert 0 < Checkpoint.load(tmp_path / "run" / "last.pt").step < 3000


@pytest.mark.slow
def test_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(random_detector(threshold=0.8), tmp_path / "run")
    tissue = SyntheticTissue(seed=1, size_px=(500, 900), mpp=0.5, tissue_fraction=1)
    slide_files.write_aperio(tmp_path / "a.svs", read_region(tissue, 0, 0, 500, 900), mpp=0.5)
    arguments = ["predict", "run", "a.svs", "--out", "found", "--tile-px", "64", "--device", "cpu"]
    first_shard = tmp_path / "found" / "a.svs" / "cells" / "00000.parquet"
    stopped = interrupt(arguments, when=first_shard, folder=tmp_path)
    assert stopped == (130, "stopped; the same command resumes\n")
    assert half_written(tmp_path) == []
    assert not (tmp_path / "found" / "a.svs" / "summary.json").exists()
    assert main(arguments) == 0
    assert len(read_prediction(tmp_path / "found" / "a.svs")) > 20


COMPILED = """
import signal, sys
from pathlib import Path
import numba
import sparseshot.cells
from sparseshot.cli import main

@numba.njit
def spin(rounds, value):
    for k in range(rounds):
        value = (value * 1103515245 + 12345) % 2147483648
    return value

def read(*_, **__):
    spin(1, 1)
    Path("begun").touch()
    spin(400_000_000, 1)

signal.signal(signal.SIGINT, signal.default_int_handler)
sparseshot.cells.read_cells = read
sys.exit(main(["cells", "begun.py"]))
"""


@pytest.mark.slow
def test_a_compiled_loop(tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(COMPILED)
    process = subprocess.Popen([sys.executable, "begun.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "stopped\n")
