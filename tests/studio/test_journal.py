import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparseshot.errors import FormatError, InputError, OutputError, RepairWarning
from sparseshot.studio import journal as journal_module
from sparseshot.studio.marks import MarkBook


def add(key: str, x: float, name: str = "cell") -> dict[str, Any]:
    return {"key": key, "slide": "1", "add": [{"class": name, "at": [x, 1]}]}


def xs(book: MarkBook) -> list[float]:
    return [item["at"][0] for item in book.items("1")]


def test_a_journal_keeps_what_it_confirmed(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([add("a", 1), add("b", 2)])
    book.record([{"key": "c", "slide": "1", "remove": ["a:0"]}])
    assert xs(MarkBook(tmp_path / "marks.jsonl")) == xs(book) == [2]


def test_an_event_that_comes_twice_counts_once(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([add("a", 1), add("a", 1)])
    book.record([add("a", 1)])
    assert xs(book) == [1]


def test_undo_and_redo_go_all_the_way(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([add(f"m{i}", i) for i in range(50)])
    book.record([{"key": "gone", "slide": "1", "remove": ["m3:0", "m4:0"]}])
    for i in range(60):
        book.record([{"key": f"u{i}", "slide": "1", "undo": True}])
    assert xs(book) == []
    book.record([{"key": f"r{i}", "slide": "1", "redo": True} for i in range(60)])
    assert sorted(xs(book)) == [x for x in range(50) if x not in {3, 4}]
    book.record([{"key": "u", "slide": "1", "undo": True}, add("new", 99)])
    book.record([{"key": "nothing", "slide": "1", "redo": True}])
    assert sorted(xs(MarkBook(tmp_path / "marks.jsonl"))) == [*range(50), 99]


def test_two_processes_see_each_others_marks(tmp_path: Path) -> None:
    ours, theirs = MarkBook(tmp_path / "marks.jsonl"), MarkBook(tmp_path / "marks.jsonl")
    ours.record([add("a", 1)])
    version, _ = theirs.since("1", "")
    theirs.record([add("b", 2)])
    assert xs(ours) == xs(theirs) == [1, 2]
    present, deltas = ours.since("1", version)
    assert [item["at"] for delta in deltas or [] for item in delta.added] == [[2, 1]]
    assert present == theirs.since("1", "")[0]


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    MarkBook(path).record([add("a", 1)])
    with path.open("ab") as file:
        file.write(b'{"key": "half", "slide": "1", "add": [{"cl')
    book = MarkBook(path)
    assert xs(book) == [1]
    book.record([add("b", 2)])
    assert xs(MarkBook(path)) == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"what?",
        b"[]",
        b"7",
        b'{"slide": "1", "add": []}',
        b'{"key": "x", "slide": "../1", "undo": true}',
        b'{"key": "x", "slide": "1", "add": [{"class": "cell"}]}',
        b'{"key": "x", "slide": "1", "add": [{"class": "cell", "at": ["1", 2]}]}',
        b'{"key": "x", "slide": "1", "add": [{"class": "cell", "at": [1e99, 2]}]}',
        b'{"key": "x", "slide": "1", "add": [{"class": "cell", "outline": [[1, 1], [2, 2], [3, 3]]}]}',
        b'{"key": "x", "slide": "1", "add": [{"region": [[1, 1], [2, 2]]}]}',
        b'{"key": "x", "class": "T", "color": "red"}',
    ],
)
def test_a_damaged_line_is_named_and_set_aside(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "marks.jsonl"
    MarkBook(path).record([add("a", 1)])
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.warns(
        RepairWarning, match=r"moved to marks\.damaged\.jsonl; all others are kept \(line 3: "
    ) as told:
        book = MarkBook(path)
    assert "pydantic" not in str(told[0].message)
    book.record([add("b", 2)])
    assert (tmp_path / "marks.damaged.jsonl").read_bytes() == line + b"\n"
    again = MarkBook(path)  # without a warning
    assert xs(again) == xs(book) == [1, 2]
    assert len(again.cells("1")) == 2


def test_a_journal_whose_first_line_is_damaged_keeps_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    MarkBook(path).record([add("a", 1), add("b", 2, "T")])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([b"?" + lines[0], lines[2], lines[3]]))  # and without the line of class T
    with pytest.warns(RepairWarning, match="line 1: "):
        book = MarkBook(path)
    assert xs(book) == [1, 2]
    assert book.cells("1").counts()["T"] == 1
    assert MarkBook(path).since("1", book.since("1", "")[0])[1] == []


def test_a_journal_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    path.write_bytes(b'{"journal": "sparseshot marks", "version": 2, "generation": "a"}\nwhat?\n')
    before = path.read_bytes()
    with pytest.raises(FormatError, match="line 1 says version 2"):
        MarkBook(path)
    assert path.read_bytes() == before


def test_a_full_disk_keeps_nothing_of_a_change_and_everything_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "marks.jsonl"
    book = MarkBook(path)
    book.record([add("a", 1)])
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="disk is full"):
        book.record([add("b", 2)])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert xs(book) == [1]
    book.record([add("b", 2)])
    assert xs(MarkBook(path)) == [1, 2]


def undo(key: str) -> dict[str, Any]:
    return {"key": key, "slide": "1", "undo": True}


def test_a_journal_that_an_earlier_version_compacted_is_not_undone(tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    whole = {"key": "all of 1", "slide": "1", "add": [{"id": "a:0", "class": "cell", "at": [1, 1]}]}
    MarkBook(path).record([{"key": "all of keys", "keys": ["u0"]}, whole])
    book = MarkBook(path)
    book.record([add("b", 2), undo("u0"), undo("u1"), undo("u2")])
    assert xs(book) == [1]


_WRITER = """
import sys
from pathlib import Path
from sparseshot.studio.marks import MarkBook
book = MarkBook(Path(sys.argv[1]))
for i in range(10**9):
    book.record([{"key": f"{sys.argv[2]}-{i}", "slide": "1", "add": [{"class": "cell", "at": [i, 1]}]}])
    print(i, flush=True)
"""


def test_marks_survive_kill_9_at_any_moment(tmp_path: Path) -> None:
    path, rng = tmp_path / "marks.jsonl", random.Random(0)
    confirmed: set[str] = set()
    for turn in range(4):
        names = [f"{turn}a", f"{turn}b"]  # two processes at once
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name], stdout=subprocess.PIPE)
            for name in names
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        time.sleep(rng.uniform(0.02, 0.3))
        for name, writer in zip(names, writers, strict=True):
            writer.send_signal(signal.SIGKILL)
            said = writer.communicate()[0].split()
            confirmed |= {f"{name}-{int(i)}:0" for i in said}
            confirmed.add(f"{name}-0:0")
    kept = {item["id"] for item in MarkBook(path).items("1")}
    assert len(confirmed) > 8
    assert confirmed <= kept


def test_the_journal_is_locked_while_it_is_written(tmp_path: Path) -> None:
    """Without the lock, lines of two processes would overwrite each other."""
    path = tmp_path / "marks.jsonl"
    books = [MarkBook(path) for _ in range(3)]
    for i in range(30):
        for number, book in enumerate(books):
            book.record([add(f"{number}-{i}", i)])
    assert len(MarkBook(path).items("1")) == 90
    events: list[journal_module.Event] = []
    journal_module.Journal(path, fold=events.append, clear=lambda: None)
    assert len(events) == 90


def test_classes_are_renamed_merged_and_deleted_and_undo_brings_marks_back(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([add("a", 1, "T"), add("b", 2, "L"), add("c", 3, "T") | {"slide": "2"}])
    color = book.classes["T"]
    book.rename("k1", "T", "Tumour")
    assert list(book.classes) == ["cell", "Tumour", "L"]  # in the place of the old one
    assert book.classes["Tumour"] == color
    assert {item["class"] for slide in "12" for item in book.items(slide)} == {"Tumour", "L"}
    book.rename("k2", "Tumour", "L")
    assert list(book.classes) == ["cell", "L"]
    book.rename("k3", "L", None)
    assert (list(book.classes), book.count("12")) == (["cell"], 0)
    book.record([{"key": "u1", "slide": "1", "undo": True}])
    assert sorted(xs(book)) == [1, 2]
    assert list(book.classes) == ["cell", "L"]
    book.record([{"key": f"u{i}", "slide": "1", "undo": True} for i in range(2, 9)])
    assert list(book.classes) == ["cell"]
    book.record([{"key": f"r{i}", "slide": "1", "redo": True} for i in range(2)])
    assert book.classes["T"] == color
    assert MarkBook(tmp_path / "marks.jsonl").classes == book.classes
    with pytest.raises(InputError, match="no class"):
        book.rename("k4", "Tumour", "L")


def test_a_class_goes_when_undo_leaves_it_without_marks_and_comes_back(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([], classes=["by hand"])
    book.record([add("a", 1, "T"), add("b", 2, "T")])
    book.record([{"key": "u1", "slide": "1", "undo": True}])
    assert list(book.classes) == ["cell", "by hand", "T"]
    book.record([{"key": f"u{i}", "slide": "1", "undo": True} for i in range(2, 5)])
    assert list(book.classes) == ["cell", "by hand"]
    book.record([{"key": "r", "slide": "1", "redo": True}])
    assert list(book.classes) == ["cell", "by hand", "T"]


def test_every_class_has_a_colour_of_its_own(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "marks.jsonl")
    book.record([], classes=[f"class {k}" for k in range(30)])
    book.rename("k", "class 3", None)
    book.record([], classes=["another"])
    assert len(set(book.classes.values())) == len(book.classes) == 31
