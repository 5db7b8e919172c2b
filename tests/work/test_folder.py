from dataclasses import dataclass
from pathlib import Path

import pytest

from sparseshot.errors import FormatError, OutputError
from sparseshot.files import is_locked, locked
from sparseshot.work import File, State, WorkFolder
from sparseshot.work.folder import RECIPE, STATE


@dataclass(frozen=True)
class Recipe:
    seed: int = 0
    mpp: float | None = None


def test_a_recipe_claims_an_empty_folder_and_finds_it_again(tmp_path: Path) -> None:
    with WorkFolder.claimed(tmp_path / "work", Recipe()) as folder:
        assert folder.state == State()
        (folder.path / "a.txt").write_text("a")
        folder.save(own={"tiles": 3})
    with WorkFolder.claimed(tmp_path / "work", Recipe()) as folder:
        assert folder.state.own == {"tiles": 3}
        folder.finish("a.txt")
    again = WorkFolder.open(tmp_path / "work")
    assert again.is_finished
    assert again.state.seconds > 0
    (again.path / "a.txt").write_text("b")
    assert not again.is_finished


def test_another_recipe_is_refused_by_what_differs(tmp_path: Path) -> None:
    with WorkFolder.claimed(tmp_path, Recipe()):
        pass
    with pytest.raises(OutputError, match="seed 0 instead of 1"), WorkFolder.claimed(tmp_path, Recipe(1)):
        pass
    with WorkFolder.claimed(tmp_path, Recipe(1), may_replace=lambda there: there == {"seed": 0}):
        pass
    with pytest.raises(OutputError, match="seed 1 instead of 0"), WorkFolder.claimed(tmp_path, Recipe()):
        pass


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(OutputError, match="is not empty"), WorkFolder.claimed(tmp_path, Recipe()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with WorkFolder.claimed(tmp_path, Recipe()):
        pass
    (tmp_path / STATE).write_text("[]")
    with pytest.raises(FormatError, match=STATE):
        WorkFolder.open(tmp_path)
    (tmp_path / RECIPE).write_text("[]")
    with pytest.raises(FormatError, match="is no recipe"), WorkFolder.claimed(tmp_path, Recipe()):
        pass


def test_a_file_of_a_result_lies_in_its_folder() -> None:
    with pytest.raises(ValueError, match="lies elsewhere"):
        File("../secret", "0")


def test_looking_whether_a_folder_is_locked_does_not_beat_its_owner(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_claim_waits_for_a_glance(tmp_path: Path) -> None:
    import fcntl
    import threading

    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("rb") as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)
        threading.Timer(0.2, glance.close).start()
        with locked(tmp_path):
            pass
