"""Each room imports only from the rooms above it."""

import ast
from pathlib import Path

import pytest

import sparseshot

ROOMS = (
    "errors",
    "files",
    "cells",
    "images",
    "losses",
    "models",
    "datasets",
    "metrics",
    "training",
    "prediction",
    "experiments",
    "demo",
    "studio",
    "cli",
)
PACKAGE = Path(sparseshot.__file__).parent


def imported_rooms(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("sparseshot.")} & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_from_rooms_above(room: str) -> None:
    files = [PACKAGE / f"{room}.py", *(PACKAGE / room).rglob("*.py")]
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for file in files:
        if file.exists():
            below = imported_rooms(file.read_text()) - allowed
            assert not below, f"{file.relative_to(PACKAGE)} imports from {below}, which stand below {room}"


def test_every_module_belongs_to_a_room() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith("__") and path.stem != "py"}
    assert found <= set(ROOMS)


def test_an_import_from_below_is_seen() -> None:
    assert imported_rooms("from sparseshot.cli import main\nimport sparseshot.losses") == {"cli", "losses"}
