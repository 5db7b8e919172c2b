"""The site builds without a warning: every page is in the navigation, every link has a target."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import sparseshot

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_the_reference_has_every_public_name_in_markdown(site: Path) -> None:
    for package in sparseshot._NAMES_OF:
        page = unescape((site / "reference" / package / "index.html").read_text())
        module = __import__(f"sparseshot.{package}", fromlist=["__all__"])
        for name in getattr(module, "__all__", sparseshot._NAMES_OF[package]):
            assert re.search(rf'id="sparseshot\.{package}\.(\w+\.)*{name}"', page), f"{name} is missing"
        assert not re.search(r":(func|class|meth|data|mod):|\.\. math::", page)
    assert not list(site.rglob("*.py"))


def test_docs_and_studio_have_one_mark_and_one_accent() -> None:
    studio = ROOT / "src" / "sparseshot" / "studio"
    assert (studio / "mark.svg").read_bytes() == (ROOT / "docs" / "pictures" / "mark.svg").read_bytes()
    site = (ROOT / "docs" / "site.css").read_text()
    accents = re.findall(r"--accent: (#\w+)", (studio / "studio.css").read_text())
    assert len(accents) == 2, "of the light page and of the dark one"
    assert all(accent in site for accent in accents)
