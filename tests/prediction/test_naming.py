from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseshot.errors import OutputError
from sparseshot.files import folder_inside, safe_name


@given(st.text(max_size=300))
def test_any_name_is_one_folder_inside(name: str) -> None:
    safe = safe_name(name)
    assert safe not in {"", ".", ".."}
    assert not set(safe) & set('/\\:*?"<>|\0\n')
    assert Path("out", safe).parent == Path("out")
    assert len(safe.encode()) <= 110
    assert not safe.startswith(".")
    assert not safe.endswith((".", " "))


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../evil.svs", "evil.svs"),
        ("/etc/passwd", "etc_passwd"),
        ("Ünïcode 切片.svs", "Ünïcode 切片.svs"),
        ("two  spaces .tif ", "two  spaces .tif"),
        ("con.svs", "slide con.svs"),
        ("...", "slide"),
        ("", "slide"),
    ],
)
def test_names_stay_readable(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_long_names_keep_their_suffix() -> None:
    assert safe_name("x" * 300, suffix="-0123456789ab") == "x" * 100 + "-0123456789ab"


def test_one_letter_written_in_two_ways_is_one_name() -> None:
    assert safe_name("e\u0301") == safe_name("\u00e9")


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "a.svs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="leads out of"):
        folder_inside(tmp_path / "out", "a.svs")
    assert folder_inside(tmp_path / "out", "b.svs") == tmp_path / "out" / "b.svs"
