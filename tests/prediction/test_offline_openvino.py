"""OpenVINO reports nothing to anybody."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

COMPILED = """
import socket

def refuse(*arguments):
    print("a connection was opened:", *arguments)
    raise OSError

socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
{before}
from sparseshot.images import Grid
from sparseshot.prediction import Model

Model.load("starter", device="cpu", precision="32", engine="openvino").on(Grid(64, 64, 1.0, 0.5))
print("compiled")
"""
IMPORTED_BEFORE = """
import openvino_telemetry
openvino_telemetry.main.TelemetrySender.send = lambda *_: print("an event was sent")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("package", "before"), [("openvino", ""), ("openvino_telemetry", IMPORTED_BEFORE)])
def test_a_prediction_reports_to_nobody(package: str, before: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    # It is silent where it recognises continuous integration or pytest, so this is another process.
    hidden = {"CI", "TF_BUILD", "JENKINS_URL"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", COMPILED.format(before=before)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "compiled\n", ran.stdout + ran.stderr
    if not before:
        assert not (tmp_path / "intel").exists()
