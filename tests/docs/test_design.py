"""The page on the design names what exists."""

import ast
import re
from pathlib import Path

import pytest
from tests.test_packages import PACKAGE, PACKAGES

PAGE = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
HOP = re.compile(r"^(\d+)\. `([\w.]+)` in `([\w/]+\.py)`", flags=re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and ``Class.method``s of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(
    "title", ["From a mark to a checkpoint", "From a slide to QuPath", "From a click to found cells"]
)
def test_every_hop_exists(title: str) -> None:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    hops = HOP.findall(section)
    assert [int(number) for number, _, _ in hops] == list(
        range(1, len(re.findall(r"^\d+\. ", section, re.M)) + 1)
    )
    assert 5 < len(hops) <= 12
    for _, name, path in hops:
        assert name in names_in(PACKAGE / path), f"{path} has no {name}"


def imported_by(path: Path) -> set[Path]:
    """Return the modules of the package that a module imports, at its top or in a function, or names."""
    source = path.read_text(encoding="utf-8")
    names = set(
        re.findall(r"sparseshot(?:\.\w+)+", source)
    )  # a process may be started by the name of a module
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    stems = [PACKAGE.joinpath(*name.split(".")[1:]) for name in names if name.startswith("sparseshot")]
    files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    return {file for file in files if file.is_file()}


@pytest.mark.parametrize(
    ("title", "command"),
    [
        ("From a mark to a checkpoint", "train"),
        ("From a slide to QuPath", "predict"),
        ("From a click to found cells", "studio"),
    ],
)
def test_a_command_leads_to_every_hop(title: str, command: str) -> None:
    """A hop's module is imported by the command, directly or through others."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    seen, waiting = set[Path](), {PACKAGE / "cli" / "commands" / f"{command}.py"}
    while waiting:
        seen |= waiting
        waiting = {file for path in waiting for file in imported_by(path)} - seen
    for _, _, path in HOP.findall(section):
        assert PACKAGE / path in seen, f"nothing leads from {command} to {path}"


def test_every_file_exists() -> None:
    root = Path(__file__).parents[2]
    for path in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert (PACKAGE / path).is_file() or (root / path).is_file(), path


def test_the_table_has_every_package_in_order() -> None:
    assert tuple(re.findall(r"^\| `(\w+)/?` \|", PAGE, flags=re.MULTILINE)) == PACKAGES
