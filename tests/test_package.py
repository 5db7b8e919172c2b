"""``import sparseshot as ss``: cheap to import, all names there, documented and typed."""

import inspect
import subprocess
import sys

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
    at_first, then = ran.stdout.splitlines()
    assert at_first == "[]"
    assert "numpy" in then
    assert "torch" not in then


def test_every_name_is_listed() -> None:
    assert sorted(ss.__all__) == sorted(name for names in ss._NAMES_OF.values() for name in names)
    assert set(ss.__all__) <= set(dir(ss))


@pytest.mark.parametrize(
    ("room", "name"), [(room, name) for room in ss._NAMES_OF for name in ss._NAMES_OF[room]]
)
def test_every_name_is_there_documented_and_typed(room: str, name: str) -> None:
    value = getattr(ss, name)
    assert (value.__name__, value.__module__.split(".")[1]) == (name, room)
    assert len((value.__doc__ or "").splitlines()[0]) > 20
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    told = inspect.signature(value)
    assert all(parameter.annotation is not told.empty for parameter in told.parameters.values())
    assert inspect.isclass(value) or told.return_annotation is not told.empty


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="'sparseshot' has no attribute 'Cell'"):
        ss.Cell  # type: ignore[attr-defined]  # noqa: B018
