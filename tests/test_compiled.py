"""Compiled loops work without a cache, and say on a terminal why the first call is slow."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

import sparseshot
from sparseshot.compiled import _NOTICE, compiled


def total(values: np.ndarray) -> float:
    result = 0.0
    for value in values:
        result += value
    return result


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_folder_for_the_cache_each_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    assert compiled(total)(np.array([1.0, 2.0])) == 3.0


@pytest.mark.parametrize(("stream", "lines"), [(Terminal(), 1), (io.StringIO(), 0)])
def test_compilation_is_announced_once_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, lines: int
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(_NOTICE, "said", False)
    monkeypatch.setattr(total, "__module__", "sparseshot.example")
    monkeypatch.setattr(caching.Cache, "_load_overload", lambda *_: None)
    for values in (np.ones(2, np.float32), np.ones(2, np.float64)):
        compiled(total)(values)
    assert stream.getvalue().count("compiling") == lines


def test_the_cache_of_an_earlier_version_is_ignored(tmp_path: Path) -> None:
    source = """
import sys
from typing import NamedTuple
from sparseshot.compiled import compiled

class Old(NamedTuple):
    value: float

@compiled
def double(pair):
    return 2 * pair.value

print(double(Old(4.0)), len(double.stats.cache_hits))
"""
    module, environment = tmp_path / "loops.py", os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import loops"]  # types of a script are not kept
    said = []
    for name in ("Old", "Old", "New", "New"):
        module.write_text(source.replace("Old", name))
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        said.append(ran.stdout or ran.stderr)
    assert said == ["8.0 0\n", "8.0 1\n", "8.0 0\n", "8.0 1\n"]


def test_division_by_zero_does_not_raise() -> None:
    assert np.isinf(compiled(lambda a, b: a / b)(1.0, 0.0))


def test_no_loop_is_compiled_in_another_way() -> None:
    package = Path(sparseshot.__file__).parent
    caching_loops = [path.name for path in package.rglob("*.py") if "FunctionCache" in path.read_text()]
    assert caching_loops == ["compiled.py"]
    assert not [path for path in package.rglob("*.py") if "cache=True" in path.read_text()]
