"""Each package imports only from the packages above it."""

import ast
from pathlib import Path

import pytest

import sparseshot

PACKAGES = (
    "errors",
    "files",
    "work",
    "compiled",
    "terminal",
    "pages",
    "cells",
    "images",
    "losses",
    "metrics",
    "models",
    "datasets",
    "prediction",
    "training",
    "active",
    "experiments",
    "studio",
    "cli",
)
PACKAGE = Path(sparseshot.__file__).parent


def imported_packages(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("sparseshot.")} & set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_from_those_above(package: str) -> None:
    files = [PACKAGE / f"{package}.py", *(PACKAGE / package).rglob("*.py")]
    allowed = set(PACKAGES[: PACKAGES.index(package) + 1])
    for file in files:
        if file.exists():
            below = imported_packages(file.read_text()) - allowed
            assert not below, f"{file.relative_to(PACKAGE)} imports from {below}, below {package}"


def test_every_module_belongs_to_a_package() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith("__") and path.stem != "py"}
    assert found <= set(PACKAGES)


def test_imports_are_found() -> None:
    assert imported_packages("from sparseshot.cli import main\nimport sparseshot.losses") == {"cli", "losses"}
