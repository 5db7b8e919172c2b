from pathlib import Path

import pytest

from sparseshot.errors import OutputError
from sparseshot.files import replacing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [p.name for p in tmp_path.iterdir()] == ["a.json.gz"]
    assert path.read_text() == "old"


def test_the_temporary_name_keeps_the_suffixes(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.json.gz") as temporary:
        assert temporary.name.endswith(".json.gz")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="create it first"), replacing(tmp_path / "no" / "a.txt"):
        pass
