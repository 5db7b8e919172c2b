import os
import signal
import sys
from pathlib import Path

from tests import limited
from tests.images import hostile_files

from sparseshot.images.tiff_check import _ome_planes


def test_hostile_files_end_in_an_error_of_ours(tmp_path: Path) -> None:
    paths = hostile_files.write_hostile_files(tmp_path)
    found = limited.outcomes("tests.images.hostile_files:read_slide", paths)
    wrong = {name: outcome for name, outcome in found.items() if not outcome.startswith(("ok", "error: "))}
    assert not wrong
    assert found["points-to-itself.tif"].endswith("in a circle; the file is damaged, copy it again")
    assert "claims an image of 3,000,000,000,000 planes" in found["planes-by-the-billion.ome.tif"]


def test_the_limits_are_kept(tmp_path: Path) -> None:
    found = limited.outcomes("tests.images.test_hostile:misbehave", [tmp_path / "crash", tmp_path / "memory"])
    assert found["crash"].startswith("unforeseen: ZeroDivisionError at test_hostile.py")
    assert found["memory"].startswith("unforeseen: MemoryError")


def test_many_beginnings_of_a_tag_are_searched_in_linear_time() -> None:
    assert _ome_planes(b"<Pixels " * 250_000) == 0  # a quadratic search would take an hour
    assert _ome_planes(b'<OME:Pixels SizeZ="7" SizeT="3"/>' + b"<" * 1_000_000) == 21


def test_the_child_that_dies_is_replaced_and_the_others_are_served() -> None:
    found = list(limited.each_outcome(die_of_some, list(range(6))))
    assert found[:3] + found[4:] == ["ok", "signal 9", "exit 3", "ok", "ok"]
    assert found[3].startswith("unforeseen: SystemExit")


def die_of_some(number: int) -> None:
    match number:
        case 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case 2:
            os._exit(3)
        case 3:
            sys.exit(4)


def misbehave(path: Path) -> None:
    if path.name == "crash":
        raise ZeroDivisionError
    bytearray(5 << 30)
