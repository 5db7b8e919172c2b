"""The wheel contains what the package needs at run time, and nothing else."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import sparseshot

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir"]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.iterdir()
    assert path.name == f"sparseshot-{sparseshot.__version__}-py3-none-any.whl"
    return zipfile.ZipFile(path)


def test_every_file_of_the_package_is_in_it(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "sparseshot").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == wanted
    assert {"sparseshot/py.typed", "sparseshot/datasets/catalogue.toml"} <= packed
    assert "sparseshot/experiments/paper_results.json" in packed
    assert any(name.startswith("sparseshot/experiments/shipped/") for name in packed)


def test_its_metadata_list_requirements_and_the_command(wheel: zipfile.ZipFile) -> None:
    folder = f"sparseshot-{sparseshot.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert any(line.startswith("torch") for line in needed)
    assert not any(line.startswith(("torchvision", "pytest", "mkdocs")) for line in needed)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "sparseshot = sparseshot.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
