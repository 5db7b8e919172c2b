"""``import sparseshot as ss``: fast to import, every name documented and typed."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import sparseshot as ss

HEAVY = ("numpy", "torch", "typer", "rich", "matplotlib", "shapely", "pyarrow")


def test_importing_it_loads_nothing_heavy_until_a_name_is_used() -> None:
    code = f"""
import sys
import sparseshot as ss
dir(ss), ss.__version__
print([name for name in {HEAVY!r} if name in sys.modules])
ss.SparseshotError, ss.Cells
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert before == "[]"
    assert "numpy" in after
    assert "torch" not in after


def test_every_name_is_listed() -> None:
    assert sorted(ss.__all__) == sorted(name for names in ss._NAMES_OF.values() for name in names)
    assert set(ss.__all__) <= set(dir(ss))


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in ss._NAMES_OF for name in ss._NAMES_OF[package]]
)
def test_every_name_is_documented_and_typed(package: str, name: str) -> None:
    value = getattr(ss, name)
    assert value.__name__ == name
    assert getattr(import_module(f"sparseshot.{package}"), name) is value
    assert len((value.__doc__ or "").splitlines()[0]) > 20
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    signature = inspect.signature(value)
    assert all(parameter.annotation is not signature.empty for parameter in signature.parameters.values())
    assert inspect.isclass(value) or signature.return_annotation is not signature.empty


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="'sparseshot' has no attribute 'Cell'"):
        ss.Cell  # type: ignore[attr-defined]  # noqa: B018
